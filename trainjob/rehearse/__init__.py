"""Runs a job's own bytes on this machine: a private Slurm, and stand-ins for hardware and SDKs."""
