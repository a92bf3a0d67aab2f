"""Drives the playbooks; the inventory is the cluster file."""
