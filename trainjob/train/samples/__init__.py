"""The samples of each update, and their way to the engine."""
