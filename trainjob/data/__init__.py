"""Prepared data sets: raw uint8 images and labels in memory-mapped files, with a JSON manifest.

Python 3.8 and numpy: every run directory carries a copy of this package.
"""
