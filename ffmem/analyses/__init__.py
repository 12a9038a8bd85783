"""One question a file: pure functions over a model and a store, results with their controls."""
