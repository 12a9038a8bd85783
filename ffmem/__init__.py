"""ffmem shows what a language model's feed-forward layers remember."""
