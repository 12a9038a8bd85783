"""Inputs that several analyses share: prefix samples, layer readings, value rankings."""
