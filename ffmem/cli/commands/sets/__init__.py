"""Commands about sets of memories."""
