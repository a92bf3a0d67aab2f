"""The writers of a run: checkpoints, metrics, progress, profiles and traces."""
