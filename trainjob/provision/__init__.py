"""The playbooks, driven: inventory from the cluster file, events, and the table at the end."""
