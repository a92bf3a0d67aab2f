"""Commands that start, end, continue, export and remove runs."""
