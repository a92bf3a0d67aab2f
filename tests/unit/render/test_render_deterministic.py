"""The same request gives the same bytes, wherever and whenever it is rendered."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from render_cases import FULL, ROOT, cluster, golden_requests, rendered, request

REQUESTS = golden_requests()
# Prints the digest of every golden request; run in a process of its own.
DIGESTS = """
from render_cases import golden_requests, rendered
for name, request in golden_requests().items():
    print(name, rendered(request).digest)
"""


def digests(folder: Path, **environment: str) -> str:
    path = os.pathsep.join([str(Path(__file__).parent), str(ROOT)])
    ended = subprocess.run(
        [sys.executable, "-c", DIGESTS],
        cwd=folder,
        env={**os.environ, **environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize("name", REQUESTS)
def test_twice_is_the_same(name: str) -> None:
    assert rendered(REQUESTS[name]) == rendered(golden_requests()[name])


def test_another_place_time_home_and_hash_seed_are_the_same(tmp_path: Path) -> None:
    here = digests(ROOT, TZ="UTC", HOME="/root", PYTHONHASHSEED="1")
    there = digests(tmp_path, TZ="Asia/Kathmandu", HOME=str(tmp_path), PYTHONHASHSEED="2", USER="other", LC_ALL="C")
    assert here == there
    assert len(here.splitlines()) == len(REQUESTS)


@pytest.mark.parametrize("name", REQUESTS)
def test_nothing_of_this_machine_is_in_the_bytes(name: str) -> None:
    names = [str(Path.home()) + "/", str(ROOT), sys.prefix, sys.executable, f'"{socket.gethostname()}"']
    text = "".join(file.content.decode() for file in rendered(REQUESTS[name]).files.values())
    assert [found for found in names if found in text] == []


def test_the_order_in_which_names_were_given_does_not_matter() -> None:
    forward = cluster(**{**FULL, "env": {"A": "1", "B": "2"}})
    backward = cluster(**{**FULL, "env": {"B": "2", "A": "1"}})
    assert rendered(request(forward)).digest == rendered(request(backward)).digest


def test_the_digest_tells_requests_apart() -> None:
    assert rendered(request(instances=1)).digest != rendered(request(instances=2)).digest
