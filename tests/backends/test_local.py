"""The suite on this machine."""

from tests.support.backend_suite import *  # noqa: F403

PLACES = ("local here",)
