"""One file per group of pages: its routes, as HTML and as JSON."""
