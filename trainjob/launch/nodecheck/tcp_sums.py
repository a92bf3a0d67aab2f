"""The node check's all-reduce without GPUs: the launchers do it themselves, and measure pairs of nodes, over TCP."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import socket
import threading
import time
from typing import List, Optional, Tuple

from trainjob.contract import environment, ports
from trainjob.launch.host import node_name
from trainjob.launch.nodecheck.meeting import Meeting, Work
from trainjob.launch.nodecheck.verdict import MOST_ROUNDS, Report, members, rounds

_PAIR_S = 30.0
_HELLO_S = 5.0
_PAIR_BYTES = 8 << 20
_NUMBERS = 1024
_ONE_BYTE = b"."


def reduce(met: Meeting, work: Work) -> Report:
    """Return this launcher's report on the sum and on its pairs; it represents its one rank."""
    rank = work.rankings[0].rank
    numbers = contribution(rank)
    # Launchers of this run know each other by it: strangers may connect, too.
    secret = hashlib.sha256(work.environment.get(environment.TOKEN, "").encode()).digest()
    with ports.listen_at(met.address, 0, MOST_ROUNDS) or socket.create_server(
        ("", 0), backlog=MOST_ROUNDS
    ) as listening:
        brought = met.gather({"rank": rank, "numbers": numbers, "port": listening.getsockname()[1]})
        wrong = [one["rank"] for one in brought if one["numbers"] != [_term(one["rank"], i) for i in range(_NUMBERS)]]
        addresses = {one["rank"]: (party["address"], one["port"]) for one, party in zip(brought, met.parties)}
        shared = met.share(
            {
                "sum": [sum(column) for column in zip(*(one["numbers"] for one in brought))],
                "rounds": rounds(members(met.parties)) if met.is_first else [],
                "addresses": {str(one): place for one, place in addresses.items()},
            }
        )
        mine = [pair for pairs in shared["rounds"] for pair in pairs if rank in pair]
        guests = sum(rank == pair[1] for pair in mine)
        serving = threading.Thread(target=_serve, args=(listening, guests, secret), daemon=True)
        serving.start()
        speeds, unreached = [], []
        for one, other in ((one, other) for one, other in mine if one == rank):
            speed = _mb_per_s(tuple(shared["addresses"][str(other)]), secret)
            speeds += [] if speed is None else [(one, other, speed)]
            unreached += [(one, other)] if speed is None else []
        serving.join(MOST_ROUNDS * _PAIR_S)
    has_wrong_sum = shared["sum"] != expected_sum(work.rankings[0].world_size)
    return Report(node_name(), [rank], wrong=wrong, has_wrong_sum=has_wrong_sum, mb_per_s=speeds, unreached=unreached)


def contribution(rank: int) -> List[int]:
    """Return the numbers that a rank adds."""
    return [_term(rank, at) for at in range(_NUMBERS)]


def _term(rank: int, at: int) -> int:
    return (rank + 1) * (at + 1)


def expected_sum(world_size: int) -> List[int]:
    """Return the sum of what all ranks add."""
    return [(at + 1) * world_size * (world_size + 1) // 2 for at in range(_NUMBERS)]


def _serve(listening: socket.socket, guests: int, secret: bytes) -> None:
    """Receive the data of `guests` launchers, one after the other: a launcher that waits does not measure yet."""
    deadline = time.monotonic() + MOST_ROUNDS * _PAIR_S
    listening.settimeout(_PAIR_S)
    while guests and time.monotonic() < deadline:
        try:
            link, _ = listening.accept()
        except OSError:
            guests -= 1  # one of them does not come
            continue
        with link, contextlib.suppress(OSError):
            link.settimeout(_HELLO_S)
            if not hmac.compare_digest(link.recv(len(secret), socket.MSG_WAITALL), secret):
                continue
            guests -= 1
            _take(link)


def _take(link: socket.socket) -> None:
    link.settimeout(_PAIR_S)
    link.sendall(_ONE_BYTE)
    left = _PAIR_BYTES
    while left:
        part = link.recv(min(left, 1 << 20))
        if not part:
            return
        left -= len(part)
    link.sendall(_ONE_BYTE)


def _mb_per_s(place: Tuple[str, int], secret: bytes) -> Optional[float]:
    with contextlib.suppress(OSError), socket.create_connection(place, timeout=_PAIR_S) as link:
        link.sendall(secret)
        if not link.recv(1):
            return None
        began = time.perf_counter()
        link.sendall(bytes(_PAIR_BYTES))
        if link.recv(1):
            return _PAIR_BYTES / 1e6 / (time.perf_counter() - began)
    return None
