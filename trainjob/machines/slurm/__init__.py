"""Slurm's commands on a machine: calls them, and reads what they say about a cluster."""
