"""One question a file: a result that carries its control, and the function that finds it."""
