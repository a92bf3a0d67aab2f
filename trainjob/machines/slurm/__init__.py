"""Slurm's commands on a machine: how they are called, and what they say of a cluster."""
