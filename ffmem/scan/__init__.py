"""Corpus and model in, the strongest triggers of every memory out."""
