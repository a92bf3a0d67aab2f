"""The base of every error that the user or the cluster can fix."""

from __future__ import annotations


class UserError(Exception):
    """What was read, the rule with both values, the cure. The command line prints it and exits with 1."""
