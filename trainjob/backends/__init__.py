"""Submission: run directories, the user's project, and back ends as modules that fit one Protocol."""
