"""Loops over numbers as machine code."""
