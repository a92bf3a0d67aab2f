"""What a job does once before its ranks start."""
