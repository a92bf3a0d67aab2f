"""Topology and batch arithmetic. Pure: no I/O, no clock, no environment."""
