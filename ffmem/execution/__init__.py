"""One scan under way: its plan, its processes, its end."""
