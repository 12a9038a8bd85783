"""What several analyses read: prefix samples, layer readings, value rankings."""
