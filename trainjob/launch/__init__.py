"""Travels to the cluster. Starts the ranks of one host and stays until all have ended.

Python 3.8, the standard library, contract and records only.
"""
