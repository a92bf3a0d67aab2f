"""Measurements that need ranks. Each is started like any command and writes one JSON file into its run directory."""
