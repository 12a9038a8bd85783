"""The steps that make the embedded default: its text, its tokenizer and its model."""
