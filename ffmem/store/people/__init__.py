"""What people wrote about a scan: their labels and lists, and every revision of their answers."""
