"""What annotators say of keys: sheets to fill in, their records, how far they agree."""
