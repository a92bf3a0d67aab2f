"""Reads how far a command of the user's own is, from what it prints and the files that it writes."""
