"""The prepared arrays of a store, and what is asked of them."""
