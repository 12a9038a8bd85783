"""One question of the paper per file: pure functions over a model and a store, with controls."""
