"""Run directories: found, told apart, followed, cancelled, resumed, exported, removed."""
