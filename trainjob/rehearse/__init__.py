"""The same bytes here: a private Slurm, and stand-ins for what can't be had."""
