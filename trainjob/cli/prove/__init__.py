"""Commands that train here to show that a job is right, or how fast it is."""
