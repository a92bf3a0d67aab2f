"""The path from a cluster and a job to a planned, rendered request."""
