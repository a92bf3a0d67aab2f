"""Writes the files of a run while it trains: checkpoints, metrics, progress and traces."""
