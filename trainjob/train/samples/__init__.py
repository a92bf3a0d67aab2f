"""Which samples an update takes, and how they reach the engine."""
