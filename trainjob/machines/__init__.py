"""Machines: where commands run, here or over ssh; their files, processes, devices, container engines and Slurm."""
