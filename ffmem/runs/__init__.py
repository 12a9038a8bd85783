"""One scan under way, in one process or in many."""
