"""What can be seen to be wrong before a run is handed over, one kind of look a module."""
