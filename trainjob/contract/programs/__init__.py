"""Facts about other people's programs, each stated once: launchers, options of Slurm, helpers, secrets, ranks."""
