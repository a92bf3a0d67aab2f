"""The folders that roles build in: what runs on the hosts, without Ansible."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.programs import ran
from trainjob.contract.package import companion


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        ("127.0.0.0/8", 0, '"127.0.0.0/8": "127.0.0.1"'),
        ("nope0", 1, "network interface nope0 has 0 addresses on this host"),
    ],
)
def test_jobs_need_one_address_on_the_interface_that_they_use(
    asked: str, code: int, message: str, needs: Callable[[str], Path]
) -> None:
    needs("ip")
    words: list[str | Path] = [sys.executable, companion("playbooks") / "roles/pod_hosts/files/interface.py", asked]
    ended = ran(words, code=code)
    assert message in ended.stdout + ended.stderr
