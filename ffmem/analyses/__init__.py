"""The paper's questions, one folder each; the opened study, and what runs and decides them."""
