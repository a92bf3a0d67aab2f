"""Seeded worlds in which the real commands and job scripts run, and a checker over what happens in them."""
