"""How work is spread over processes and machines; knows nothing of memories."""
