"""Checks nodes before ranks start, and the all-reduce between them."""
