"""What the command line and the runtime agree on: files, words, names and numbers.

Standard library only, Python 3.8: every run directory carries a copy of this package.
"""
