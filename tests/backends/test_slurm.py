"""The suite on a private Slurm."""

from tests.support.backend_suite import *  # noqa: F403
from tests.support.launcher_suite import *  # noqa: F403
from tests.support.moving_suite import *  # noqa: F403

PLACES = ("slurm here", "slurm far")
