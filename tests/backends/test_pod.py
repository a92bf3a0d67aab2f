"""The suite on a pod with the stand-in poprun.

Far away, what tests/services/pod/test_over_ssh.py and the hosts' suite show together is for make test-full.
"""

import pytest

from tests.support.backend_suite import *  # noqa: F403

PLACES = ("ipu-pod here", pytest.param("ipu-pod far", marks=pytest.mark.full))
