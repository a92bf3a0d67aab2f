"""Travels to the cluster. One module for each file of a run directory, which nothing else opens: type, reader, writer.

Standard library only, Python 3.8.
"""
