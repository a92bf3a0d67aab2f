"""Which engine is used, and what a user without one reads."""

from __future__ import annotations

import pytest

from tests.support.recording_engines import Engines
from trainjob.contract.errors import UserError
from trainjob.machines.container_engines import BUILDING, RUNNING, find


def test_the_first_that_is_here_is_used(engines: Engines) -> None:
    engines.add("podman")
    engines.add("apptainer")
    assert find(None, BUILDING) == "podman"


def test_the_one_that_is_asked_for_is_used(engines: Engines) -> None:
    engines.add("docker", answer="20.10")
    engines.add("apptainer")
    assert find("apptainer", BUILDING) == "apptainer"


def test_no_engine_is_an_error_with_a_cure(engines: Engines) -> None:
    with pytest.raises(UserError, match=r"docker nor podman is not on PATH: install .*another engine"):
        find(None, RUNNING)


def test_an_engine_that_we_do_not_know_is_refused(engines: Engines) -> None:
    with pytest.raises(UserError, match="--engine lxc: expected docker, podman"):
        find("lxc", RUNNING)
