"""Cluster and job files: read, checked, frozen."""
