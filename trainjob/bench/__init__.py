"""Measurements for users: loader, collective, scaling. Each is a run of its own; a figure is never written by hand."""
