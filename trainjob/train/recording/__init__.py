"""What a run writes while it trains: checkpoints, metrics, progress and traces."""
