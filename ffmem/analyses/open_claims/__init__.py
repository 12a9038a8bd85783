"""Claims that a study leaves open: what would decide them, before, during and after it."""
