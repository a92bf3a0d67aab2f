"""Back ends as modules that fit one Protocol; process.py alone starts subprocesses."""
