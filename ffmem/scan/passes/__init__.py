"""One pass over a layer's coefficients on each kind of machine, and the selection behind it."""
