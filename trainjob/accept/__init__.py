"""Accepts a cluster: a ladder of small real jobs, each the cheapest that can show its point."""
