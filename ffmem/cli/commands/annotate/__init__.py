"""The commands under `ffmem annotate`."""
