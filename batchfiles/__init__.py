"""Batch files that others wrote: read, diagnosed, mended, rehearsed, and turned into jobs."""
