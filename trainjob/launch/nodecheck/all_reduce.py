"""The node check's all-reduce: all ranks sum numbers that are known beforehand, and each verifies the sum.

On GPUs a process for each rank does so, with the job's own torch and NCCL. Elsewhere the launchers do it themselves,
over TCP as gloo does. Pairs of nodes, or of the ranks of a single node, then measure the bandwidth between them.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from typing import IO, Callable, Dict, List, Optional, Sequence, Tuple, Union

from trainjob.contract import clock, environment, ports
from trainjob.launch import processes, rank_environment
from trainjob.launch.host import node_name
from trainjob.launch.nodecheck import meeting
from trainjob.launch.nodecheck.meeting import LauncherMeeting, NobodyMetError, Work
from trainjob.launch.nodecheck.verdict import (
    LIMIT_S,
    MOST_ROUNDS,
    SKIPPED,
    NodeReport,
    NodeVerdict,
    judge,
    members,
    rounds,
)

CHILD = (sys.executable, "-m", "trainjob.train.measure.all_reduce")
_MEET_S = 60.0
_POLL_S = 0.05
_PAIR_S = 30.0
_HELLO_S = 5.0
_PAIR_BYTES = 8 << 20
_NUMBERS = 1024
_ONE_BYTE = b"."


def verdict(work: Work, record: Callable[[NodeVerdict], None]) -> Optional[NodeVerdict]:
    """Return the verdict on all nodes, the same on each; None if nothing is to be reduced.

    The first launcher calls `record` before any other learns of a refusal and ends. Raises NoWayError.
    """
    first = work.rankings[0]
    others = first.world_size - len(work.rankings)
    if first.world_size == 1 or not (others or work.children):
        return None
    address, port = (work.environment.get(name) for name in (environment.MASTER_ADDR, environment.MASTER_PORT))
    if first.local_world_size == first.world_size:
        address = ports.LOOPBACK
    if not address or not (port or "").isdigit():
        return NodeVerdict(SKIPPED % "where the ranks meet is not known")
    try:
        met = _meet(work, address, int(port or 0), others)
        with contextlib.closing(met):
            mine = _on_gpus(met, work) if work.children else [_over_tcp(met, work)]
            if isinstance(mine, NodeVerdict):
                return mine
            gathered = met.gather([report._asdict() for report in mine])
            reports = [NodeReport(**fields) for of_launcher in gathered for fields in of_launcher]
            found = judge(reports) if met.is_first else NodeVerdict("")
            if found.is_refused:
                record(found)
            return NodeVerdict(**met.share(found._asdict()))
    except NobodyMetError as error:
        return NodeVerdict(SKIPPED % error)


def _meet(work: Work, address: str, port: int, others: int) -> LauncherMeeting:
    numbers = [ranking.rank for ranking in work.rankings]
    has_torch = importlib.util.find_spec("torch") is not None
    mine = {"ranks": numbers, "node": node_name(), "address": address, "has_torch": has_torch}
    token = work.environment.get(environment.TOKEN, "")
    if numbers[0] == 0:
        return meeting.host(address, port, token, mine, others, 2 * _MEET_S)
    return meeting.join(address, port, token, mine, _MEET_S)


# -- on GPUs -------------------------------------------------------------------------------------


def _on_gpus(met: LauncherMeeting, work: Work) -> Union[List[NodeReport], NodeVerdict]:
    """Return the reports of this node's ranks; a verdict if there is nothing to report."""
    without = met.share(sorted({party["node"] for party in met.parties if not party["has_torch"]}))
    if without:
        return NodeVerdict(SKIPPED % "%s on %s has no torch" % (sys.executable, ", ".join(without)))
    port = met.share(rank_environment.free_port(int.from_bytes(os.urandom(4), "big")) if met.is_first else 0)
    words = [*CHILD, json.dumps(met.share(rounds(members(met.parties)) if met.is_first else []))]
    with contextlib.ExitStack() as stack:
        started = [_Child(words, environ, port, stack) for environ in work.children]
        _wait(started, lambda child: not child.is_ready)
        # A rank whose GPU does not work would keep the others waiting.
        if met.share(all(met.gather(all(child.is_ready and child.runs() for child in started)))):
            for child in started:
                child.go()
            _wait(started)
        return [child.end(ranking.rank) for child, ranking in zip(started, work.rankings)]


def _wait(started: "List[_Child]", is_awaited: "Callable[[_Child], bool]" = bool) -> None:
    """Return when no running process is awaited any more, or after the limit."""
    deadline = clock.monotonic() + LIMIT_S
    # Each is asked every time, because it then notes that it has ended.
    while any([child.runs() and is_awaited(child) for child in started]) and clock.monotonic() < deadline:  # noqa: C419
        clock.sleep(_POLL_S)


class _Child:
    """The process of one rank. It prints an object when ready, begins when it reads a line, and prints its report."""

    def __init__(self, words: Sequence[str], environ: Dict[str, str], port: int, stack: contextlib.ExitStack) -> None:
        self._printed: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
        self._errors: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
        self._began = clock.monotonic()
        self._seconds = 0.0
        token = environ.get(environment.TOKEN, "") + ".node-check"
        reading, self._input = os.pipe()
        stack.callback(os.close, self._input)
        stack.callback(os.close, reading)
        self._process = subprocess.Popen(
            list(words),
            stdin=reading,
            stdout=self._printed,
            stderr=self._errors,
            env={"OMP_NUM_THREADS": "1", **environ, environment.MASTER_PORT: str(port), environment.TOKEN: token},
            preexec_fn=lambda: processes.end_with_parent(signal.SIGKILL),  # noqa: PLW1509 - this process has one thread
        )
        stack.callback(self._process.kill)

    @property
    def is_ready(self) -> bool:
        """True if its GPU has answered."""
        return os.fstat(self._printed.fileno()).st_size > 0

    def runs(self) -> bool:
        """Return whether the process still works."""
        if self._process.poll() is None:
            return True
        self._seconds = self._seconds or clock.monotonic() - self._began
        return False

    def go(self) -> None:
        """Make it begin."""
        with contextlib.suppress(OSError):
            os.write(self._input, b"\n")

    def end(self, rank: int) -> NodeReport:
        """Return the report that the process printed, and its error if it failed by itself."""
        has_failed = self._process.poll() not in (None, 0)
        self._process.kill()
        self._process.wait()
        report = NodeReport(node_name(), rank, failed_after_s=self._seconds, is_ready=False, wrong=None)
        for line in _lines(self._printed):
            with contextlib.suppress(ValueError, TypeError):
                report = report._replace(**json.loads(line))
        if has_failed:
            last = ([line for line in _lines(self._errors) if line.strip()] or ["nothing printed"])[-1]
            report = report._replace(failed="exit code %d: %s" % (self._process.returncode, last.strip()))
        return report


def _lines(file: IO[bytes]) -> List[str]:
    file.seek(0)
    return file.read().decode("utf-8", "replace").splitlines()


# -- over TCP ------------------------------------------------------------------------------------


def _over_tcp(met: LauncherMeeting, work: Work) -> NodeReport:
    """Return this launcher's report on the sum and on its pairs; it represents its one rank."""
    rank = work.rankings[0].rank
    # Launchers of this run know each other by it: strangers may connect, too.
    secret = hashlib.sha256(work.environment.get(environment.TOKEN, "").encode()).digest()
    with ports.listen_at(met.address, 0, MOST_ROUNDS) or socket.create_server(
        ("", 0), backlog=MOST_ROUNDS
    ) as listening:
        brought = met.gather((rank, contribution(rank), listening.getsockname()[1]))
        wrong = [other for other, numbers, _ in brought if numbers != _terms(other + 1)]
        total = met.share([sum(column) for column in zip(*(numbers for _, numbers, _ in brought))])
        # JSON has text for keys.
        addresses = met.share(
            {str(other): (party["address"], port) for (other, _, port), party in zip(brought, met.parties)}
        )
        listed = met.share(rounds(members(met.parties)) if met.is_first else [])
        mine = [pair for pairs in listed for pair in pairs if rank in pair]
        guests = sum(rank == other for _, other in mine)
        serving = threading.Thread(target=serve, args=(listening, guests, secret), daemon=True)
        serving.start()
        speeds, unreached = [], []
        for one, other in mine:
            if one == rank:
                host, port = addresses[str(other)]
                speed = mb_per_s((host, port), secret)
                if speed is None:
                    unreached.append((one, other))
                else:
                    speeds.append((one, other, speed))
        serving.join(MOST_ROUNDS * _PAIR_S)
    has_wrong_sum = total != expected_sum(work.rankings[0].world_size)
    return NodeReport(node_name(), rank, wrong=wrong, has_wrong_sum=has_wrong_sum, mb_per_s=speeds, unreached=unreached)


def contribution(rank: int) -> List[int]:
    """Return the numbers that a rank adds."""
    return _terms(rank + 1)


def expected_sum(world_size: int) -> List[int]:
    """Return the sum of what all ranks add."""
    return _terms(world_size * (world_size + 1) // 2)


def _terms(factor: int) -> List[int]:
    return [factor * (at + 1) for at in range(_NUMBERS)]


def serve(listening: socket.socket, guests: int, secret: bytes) -> None:
    """Receive the data of `guests` launchers, one after the other: a launcher that waits does not measure yet."""
    deadline = clock.monotonic() + MOST_ROUNDS * _PAIR_S
    listening.settimeout(_PAIR_S)
    while guests and clock.monotonic() < deadline:
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
            link.settimeout(_PAIR_S)
            link.sendall(_ONE_BYTE)
            left = _PAIR_BYTES
            while left:
                part = link.recv(min(left, 1 << 20))
                if not part:
                    break
                left -= len(part)
            else:
                link.sendall(_ONE_BYTE)


def mb_per_s(address: Tuple[str, int], secret: bytes) -> Optional[float]:
    """Return how fast the launcher that serves at `address` receives data from this one; None if it does not."""
    with contextlib.suppress(OSError), socket.create_connection(address, timeout=_PAIR_S) as link:
        link.sendall(secret)
        if not link.recv(1):
            return None
        began = clock.monotonic()
        link.sendall(bytes(_PAIR_BYTES))
        if link.recv(1):
            return _PAIR_BYTES / 1e6 / (clock.monotonic() - began)
    return None
