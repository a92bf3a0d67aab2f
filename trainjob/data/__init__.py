"""Prepared data sets: raw uint8 images and labels in memory-mapped files, with a JSON manifest.

Python 3.8 and numpy: a copy of this room travels in every run directory.
"""
