"""A private Slurm: a digital twin of the cluster in a cluster file of kind slurm."""
