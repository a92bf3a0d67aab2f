"""Reads bash: what a script would run, with the values that its variables have there."""
