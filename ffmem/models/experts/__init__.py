"""A mixture of experts as one layer of memories."""
