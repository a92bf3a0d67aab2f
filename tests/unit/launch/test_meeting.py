"""Who is let into a meeting of launchers, and where it listens."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.waiting import until
from trainjob.launch import rank_environment
from trainjob.launch.nodecheck import all_reduce, meeting

TOKEN, LIMIT_S = "abc", 60.0


def test_a_stranger_is_not_counted_and_the_chosen_address_is_the_only_one() -> None:
    port = rank_environment.free_port(os.getpid())  # other tests look elsewhere
    with ThreadPoolExecutor() as pool:
        first = pool.submit(meeting.host, "127.0.0.1", port, TOKEN, {"node": "n0"}, 1, LIMIT_S)
        stranger = meeting.join("127.0.0.1", port, "another token", {"node": "stranger"}, LIMIT_S)
        no_text = meeting.join("127.0.0.1", port, "\ud800", {"node": "stranger"}, LIMIT_S)
        second = meeting.join("127.0.0.1", port, TOKEN, {"node": "n1"}, LIMIT_S)
        met = first.result(LIMIT_S)
        assert [party["node"] for party in met.parties] == ["n0", "n1"]
        assert met.address == second.address == "127.0.0.1"
        stranger.close()
        no_text.close()
        second.close()
        met.close()


@pytest.mark.parametrize(
    "said",
    [
        b"[" * 100_000,  # deeper than Python's stack
        b"9" * 4000,
        json.dumps({"node": "stranger", "token": TOKEN}).encode(),
        b"",
        None,  # one byte after the other, without an end
    ],
)
def test_whatever_a_stranger_says_keeps_nobody_from_meeting(
    said: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meeting, "HELLO_S", 0.5)
    port = rank_environment.free_port(os.getpid() + 1)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(meeting.host, "127.0.0.1", port, TOKEN, {"node": "n0"}, 1, LIMIT_S)
        stranger = until(lambda: _connected(port), "the first launcher to listen")
        dripping = pool.submit(_send, stranger, said)
        second = meeting.join("127.0.0.1", port, TOKEN, {"node": "n1"}, LIMIT_S)
        met = first.result(LIMIT_S)
        assert [party["node"] for party in met.parties] == ["n0", "n1"]
        for link in (stranger, second, met):
            link.close()
        dripping.result(LIMIT_S)


def _connected(port: int) -> socket.socket | None:
    with contextlib.suppress(OSError):
        return socket.create_connection(("127.0.0.1", port))
    return None


def _send(link: socket.socket, said: bytes | None) -> None:
    """Send a message, or a byte at a time until nobody listens any more."""
    with contextlib.suppress(OSError):
        if said is not None:
            link.sendall(struct.pack("!I", len(said)) + said)
        while said is None:
            link.sendall(b"\x01")
            time.sleep(0.05)


def test_bandwidth_is_measured_with_those_that_know_the_token() -> None:
    ours, strangers = b"o" * 32, b"s" * 32
    with ThreadPoolExecutor() as pool, socket.create_server(("127.0.0.1", 0)) as listening:
        serving = pool.submit(all_reduce.serve, listening, 1, ours)
        assert all_reduce.mb_per_s(listening.getsockname(), strangers) is None
        speed = all_reduce.mb_per_s(listening.getsockname(), ours)
        assert speed is not None
        assert speed > 0
        serving.result(LIMIT_S)
