"""Text, cut into sentences that have stable places."""
