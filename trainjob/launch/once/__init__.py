"""Runs what a job needs once before its ranks start."""
