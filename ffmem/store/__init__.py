"""What a scan or an analysis leaves behind on disk."""
