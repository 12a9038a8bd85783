"""Files on this machine: written whole, locked, kept for later runs."""
