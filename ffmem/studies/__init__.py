"""A study: a scan, the answers to the paper's questions about it, and how they are made."""
