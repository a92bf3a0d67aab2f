"""Batch files of others turned into a job file and a cluster file that do the same."""
