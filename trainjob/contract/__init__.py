"""What the command line and the runtime agree on: files, words, names and numbers.

Standard library only, Python 3.8: a copy of this room travels in every run directory.
"""
