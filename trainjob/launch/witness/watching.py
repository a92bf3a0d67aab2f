"""A process beside the ranks watches them.

It records what they use, writes down their stacks on request, and names a rank of a user's own command that
shows no sign of life. It is a separate process, so that neither a tool that hangs with its device nor a slow file
system delays what the launcher owes its ranks. It takes no more than 0.5 % of a core: where a sample costs more, the
next one comes later.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from typing import Dict, List, NamedTuple, Optional, Sequence

from trainjob.contract.environment import RANK, WORLD_SIZE
from trainjob.contract.paths import RunPaths
from trainjob.launch import processes
from trainjob.launch.options import EVERY_S
from trainjob.launch.rank_environment import Watched
from trainjob.launch.witness import stacks
from trainjob.launch.witness.stacks import Stacks
from trainjob.launch.witness.usage import Sampler
from trainjob.records import attempts, usage
from trainjob.records import stacks as stack_records
from trainjob.records.stacks import RankStacks
from trainjob.records.usage import UsageRecord

NAME = "trainjob-watch"
_LOOK_S = 1.0
_FIRST_S = 1.0  # between the first two samples; doubled each time up to the interval
_MOST_OF_A_CORE = 0.005
# Waiting threads take less than this; a process that computes takes a hundred times as much.
_IDLE_CORES = 0.01
_OTHERS_S = 5.0


class Orders(NamedTuple):
    """The observer's task."""

    every_s: float = EVERY_S  # 0: only the first sample, which shows the rank's host and devices
    stall_timeout_s: Optional[float] = None  # None: the ranks watch themselves
    ends_stalled: bool = False
    answered: Optional[str] = None  # the request for stacks that was there before the ranks began


def begin(paths: RunPaths, ranks: Sequence[Watched], held: Stacks, orders: Orders) -> None:
    """Fork the observer, which ends with this process."""
    parent = os.getpid()
    try:
        if os.fork() != 0:
            return
    except OSError as error:  # too many processes: the ranks run without an observer
        sys.stderr.write("trainjob: nothing watches what the ranks use: %s\n" % error.strerror)
        return
    code = 1
    try:
        processes.end_with_parent(signal.SIGKILL, parent)
        processes.take_name(NAME)
        _Observer(paths, ranks, held, orders).run()
        code = 0
    except Exception as error:  # noqa: BLE001 - the ranks run on, and the log says why nothing is recorded
        sys.stderr.write("trainjob: what the ranks use is recorded no longer: %s: %s\n" % (type(error).__name__, error))
    finally:
        sys.stderr.flush()
        os._exit(code)


class _Observer:
    def __init__(self, paths: RunPaths, ranks: Sequence[Watched], held: Stacks, orders: Orders) -> None:
        self._paths, self._ranks, self._held, self._orders = paths, ranks, held, orders
        self._sampler = Sampler(ranks)
        environ = ranks[0].environment
        self._world_size = int(environ[WORLD_SIZE])
        # A launcher that starts the ranks of its node writes for all of them, and is given no RANK.
        self._writers = self._world_size if RANK in environ else int(environ["NNODES"])
        self._answered = orders.answered
        self._life = {rank.rank: _Life(paths, rank.rank) for rank in ranks}

    def run(self) -> None:
        """Watch until the launcher ends, and this process with it."""
        interval_s = self._sample(_FIRST_S)
        due = time.monotonic() + interval_s
        while True:
            time.sleep(min(_LOOK_S, max(0.0, due - time.monotonic())))
            self._answer()
            if time.monotonic() >= due:
                interval_s = self._sample(interval_s * 2)
                due = time.monotonic() + interval_s

    def _sample(self, wished_s: float) -> float:
        """Take a sample, and return the seconds until the next one."""
        began = _cpu_s()
        records = self._sampler.sample()
        if self._orders.every_s or any(record.cpu_cores is None for record in records):
            self._record(records)
        for record in records:
            self._report_other_world(record)
        limit_s = self._orders.stall_timeout_s
        for record in records if limit_s is not None else ():
            idle_s = self._life[record.rank].idle_s(record)
            if idle_s >= (limit_s or 0.0):
                self._report_stall(record.rank, idle_s)
        longest_s = min(self._orders.every_s or EVERY_S, limit_s / 4 if limit_s else EVERY_S)
        return max(min(wished_s, longest_s), (_cpu_s() - began) / _MOST_OF_A_CORE)

    def _record(self, records: Sequence[UsageRecord]) -> None:
        for record in records:
            with contextlib.suppress(OSError):  # a full disk: the ranks will report it
                usage.append(self._paths, record)

    def _report_other_world(self, record: UsageRecord) -> None:
        """Report once that a launcher in the command has made a world of its own."""
        life = self._life[record.rank]
        if record.other_world_size is None or life.is_elsewhere:
            return
        life.is_elsewhere = True
        with contextlib.suppress(OSError):
            usage.append(self._paths, record)
        sys.stderr.write(
            "trainjob: rank %d has started ranks of another world: its size is %d, and that of the run %d. A command "
            "that starts ranks by itself is started once per node: --command-per node\n"
            % (record.rank, record.other_world_size, self._world_size)
        )
        sys.stderr.flush()

    def _answer(self) -> None:
        word = attempts.asked_for_stacks(self._paths)
        if word is not None and word != self._answered:
            self._answered = word
            self._write_stacks(word)

    def _write_stacks(self, word: str) -> Dict[int, RankStacks]:
        try:
            return stacks.write(self._paths, self._held, self._ranks, word)
        except OSError as error:
            sys.stderr.write("trainjob: the stacks of the ranks can't be written: %s\n" % error.strerror)
            return {}

    def _report_stall(self, rank: int, idle_s: float) -> None:
        """Report the rank in its log, keep the stacks of all ranks, and end it if the job says so."""
        life = self._life[rank]
        if life.is_reported:
            return
        life.is_reported = True
        word = attempts.asked_for_stacks(self._paths)
        if word is None or not word.startswith("stall-"):
            word = "stall-%d-%d" % (rank, os.getpid())
            with contextlib.suppress(OSError):
                attempts.ask_for_stacks(self._paths, word)
        self._answered = word
        mine = self._write_stacks(word).get(rank)
        with open(str(self._paths.rank_log(rank)), "a") as log:
            log.write(_report(rank, idle_s, mine))
        pid = next(one.pid for one in self._ranks if one.rank == rank)
        if self._orders.ends_stalled:
            self._wait_for_others(word)
            os.kill(pid, signal.SIGKILL)

    def _wait_for_others(self, word: str) -> None:
        """Wait until all ranks have written their stacks: ending one ends all."""
        deadline = time.monotonic() + _OTHERS_S
        while time.monotonic() < deadline:
            if all(word in stack_records.word(self._paths, rank) for rank in range(self._world_size)):
                return
            time.sleep(_LOOK_S / 4)


class _Life:
    """The time of a rank's last sign of life: output, CPU time, or work of its device."""

    def __init__(self, paths: RunPaths, rank: int) -> None:
        self._log = paths.rank_log(rank)
        self._log_bytes = -1
        self._since = time.monotonic()
        self.is_reported = False
        self.is_elsewhere = False  # its processes have formed a world of their own

    def idle_s(self, record: UsageRecord) -> float:
        """Return how long the rank has shown no sign of life, given a new sample."""
        size = self._log.stat().st_size if self._log.exists() else 0
        prints = size != self._log_bytes and not self.is_reported  # the report itself is in the log, too
        self._log_bytes = size
        computes = record.cpu_cores is None or record.cpu_cores >= _IDLE_CORES
        if prints or computes or any(device.use for device in record.devices):
            self._since, self.is_reported = time.monotonic(), False
        return time.monotonic() - self._since


def _report(rank: int, idle_s: float, mine: Optional[RankStacks]) -> str:
    lines: List[str] = [
        "trainjob: rank %d has shown no sign of life for %.0f s (--stall-timeout-s): no output, no CPU time and no "
        "work of its device. `trainjob stacks` shows where all ranks are; its own processes:" % (rank, idle_s)
    ]
    for one in mine.processes if mine is not None else ():
        lines.append("process %d (%s): %s" % (one.pid, one.state, one.command))
        lines += ["  %s" % line for line in (one.stack or "no Python stack").splitlines()]
    return "\n".join(lines) + "\n"


def _cpu_s() -> float:
    return sum(os.times()[:4])
