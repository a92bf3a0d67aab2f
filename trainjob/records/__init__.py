"""One module for each file of a run directory: its type, its reader and its writer. Nobody else opens these files."""
