"""A checkpoint, seen as a list of feed-forward layers."""
