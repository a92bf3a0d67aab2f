"""Slurm: sbatch, squeue, scancel, and sacct where it works."""
