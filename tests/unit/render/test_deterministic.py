"""The same request gives the same bytes, wherever and whenever it is rendered."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from tests.support import ROOT
from tests.support.cases import each
from tests.support.render_cases import FULL, cluster, golden_requests, rendered, request

REQUESTS = golden_requests()


@each("name", REQUESTS)
def test_twice_is_the_same(name: str) -> None:
    assert rendered(REQUESTS[name]) == rendered(golden_requests()[name])


@each("name", REQUESTS)
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
