"""A private Slurm: the digital twin of a slurm cluster file."""
