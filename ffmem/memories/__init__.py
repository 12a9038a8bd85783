"""Keys, values and coefficients: reading them, projecting them, changing them."""
