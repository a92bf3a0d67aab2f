"""What is verified before a job is queued."""
