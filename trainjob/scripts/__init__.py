"""Batch files that others wrote: read, and diagnosed."""
