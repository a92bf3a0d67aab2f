"""Run directories: found, listed, followed, cancelled, resumed, exported and removed."""
