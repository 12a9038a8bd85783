"""What a scan keeps for every memory, and how two parts of it merge."""
