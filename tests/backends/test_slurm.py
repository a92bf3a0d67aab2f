"""The suite on a private Slurm."""

from tests.support.backend_suite import *  # noqa: F403

PLACES = ("slurm here", "slurm far")
