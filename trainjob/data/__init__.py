"""Travels to the cluster. Prepared data sets: raw uint8 images and labels in memory-mapped files, with a manifest.

Python 3.8 and numpy.
"""
