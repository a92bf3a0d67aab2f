"""Engines that do not answer."""

from __future__ import annotations

import pytest

from tests.support.recording_engines import Engines
from trainjob.contract.errors import UserError
from trainjob.machines.container_engines import RUNNING, find


def test_a_docker_without_its_daemon_gives_way_to_podman(engines: Engines) -> None:
    engines.add("docker", code=1)
    engines.add("podman")
    assert find(None, RUNNING) == "podman"


def test_an_engine_that_does_not_answer_is_an_error_with_a_cure(engines: Engines) -> None:
    engines.add("docker", code=1)
    with pytest.raises(UserError, match=r"does not answer .*systemctl start docker.*DOCKER_HOST"):
        find("docker", RUNNING)
