"""Accepts a cluster: a series of small real jobs, each the cheapest that can show its point."""
