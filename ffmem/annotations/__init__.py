"""Annotation of keys: sheets to fill in, their records, agreement of annotators."""
