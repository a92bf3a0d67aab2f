"""The suite on a pod with the stand-in poprun."""

from tests.support.backend_suite import *  # noqa: F403

PLACES = ("ipu-pod here", "ipu-pod far")
