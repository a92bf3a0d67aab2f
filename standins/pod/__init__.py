"""Stand-ins for poprun and vipu: what they do to a job, without IPUs. Python 3.8, standard library."""
