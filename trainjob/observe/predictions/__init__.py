"""Earlier runs of the same work → what a job is expected to take."""
