"""One module for each file of a run directory: its type, reader and writer. Only this package opens these files."""
