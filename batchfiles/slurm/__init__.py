"""Reads Slurm: directives, what a file requests, and what its steps launch."""
