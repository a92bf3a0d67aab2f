"""The suite on three hosts without a scheduler."""

from tests.support.backend_suite import *  # noqa: F403
from tests.support.moving_suite import *  # noqa: F403

PLACES = ("hosts here", "hosts far")
