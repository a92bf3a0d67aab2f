"""The same request gives the same bytes, wherever and whenever it is rendered."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.support import ROOT
from tests.support.programs import ran
from tests.support.render_cases import golden_requests

REQUESTS = golden_requests()
# Prints the digest of every golden request; run in a process of its own.
DIGESTS = """
from tests.support.render_cases import golden_requests, rendered
for name, request in golden_requests().items():
    print(name, rendered(request).digest)
"""


def digests(folder: Path, **environment: str) -> str:
    ended = ran(
        [sys.executable, "-c", DIGESTS],
        folder=folder,
        environ={**os.environ, **environment, "PYTHONPATH": str(ROOT)},
        code=0,
    )
    return ended.stdout


def test_another_place_time_home_and_hash_seed_are_the_same(tmp_path: Path) -> None:
    here = digests(ROOT, TZ="UTC", HOME="/root", PYTHONHASHSEED="1")
    there = digests(tmp_path, TZ="Asia/Kathmandu", HOME=str(tmp_path), PYTHONHASHSEED="2", USER="other", LC_ALL="C")
    assert here == there
    assert len(here.splitlines()) == len(REQUESTS)
