"""Checks before a job is queued."""
