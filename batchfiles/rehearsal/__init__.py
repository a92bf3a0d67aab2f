"""Runs a batch file that others wrote on a private Slurm, records what each process saw, and judges it."""
