"""Starts the ranks of one host and stays until all have ended. Python 3.8, standard library and contract only."""
