"""Another machine, over the system's ssh and the user's own configuration."""
