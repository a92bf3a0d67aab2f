"""Who is let into a meeting of launchers, and where it listens."""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor

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


def test_bandwidth_is_measured_with_those_that_know_the_token() -> None:
    ours, strangers = b"o" * 32, b"s" * 32
    with ThreadPoolExecutor() as pool, socket.create_server(("127.0.0.1", 0)) as listening:
        serving = pool.submit(all_reduce.serve, listening, 1, ours)
        assert all_reduce.mb_per_s(listening.getsockname(), strangers) is None
        speed = all_reduce.mb_per_s(listening.getsockname(), ours)
        assert speed is not None
        assert speed > 0
        serving.result(LIMIT_S)
