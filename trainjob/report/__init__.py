"""A run directory → Report."""
