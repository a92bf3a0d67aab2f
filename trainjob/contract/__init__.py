"""Travels to the cluster. The vocabulary of both halves: settings, states, exit codes, names, paths, arithmetic.

Standard library only, Python 3.8.
"""
