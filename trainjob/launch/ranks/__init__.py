"""Starts, supervises and ends the ranks of one host."""
