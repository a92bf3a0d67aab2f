"""The vocabulary of the command line and the runtime: settings, states, exit codes, names, paths and arithmetic.

Standard library only, Python 3.8: every run directory carries a copy of this package.
"""
