"""The files of scans and analyses."""
