"""Measurements that need ranks: started like any command, each leaves one JSON file in its run directory."""
