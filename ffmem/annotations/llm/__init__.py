"""Annotation by a language model: question, reply, cache, endpoint."""
