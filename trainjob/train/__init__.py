"""Travels to the cluster. The runtime: `python -m trainjob.train RUN_DIR` is one rank.

Python 3.8, torch 1.10 and newer.
"""
