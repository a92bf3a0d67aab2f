"""A process beside the ranks watches them.

It records what they use, writes down their stacks on request, reads how far a user's own command is, and names a rank
of such a command that shows no sign of life. It is a separate process, so that neither a tool that hangs with its
device nor a slow file system delays what the launcher owes its ranks. It takes no more than 0.5 % of a core: where a
sample costs more, the next one comes later.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, List, NamedTuple, Optional, Sequence, Set

from trainjob.contract import clock, environment
from trainjob.contract.environment import WORLD_SIZE
from trainjob.contract.paths import RunPaths
from trainjob.launch import processes
from trainjob.launch.options import EVERY_S
from trainjob.launch.rank_environment import Watched
from trainjob.launch.witness import stacks
from trainjob.launch.witness.quiet import IDLE_CORES, Outliving, Rules, Stall
from trainjob.launch.witness.stacks import Stacks
from trainjob.launch.witness.usage import Sampler
from trainjob.records import attempts, usage
from trainjob.records import stacks as stack_records
from trainjob.records.stacks import RankStacks
from trainjob.records.usage import UsageRecord

if TYPE_CHECKING:
    from trainjob.launch.reading.recording import ScriptProgress

NAME = "trainjob-watch"
_LOOK_S = 1.0
_SHORT_S = 0.005
_RANK_BYTES = 4
_REPORTED = math.inf
_LEAST_USE = 0.01  # of a device: a driver that only answers a tool shows none
_FIRST_S = 1.0  # between the first two samples; doubled each time up to the interval
_MOST_OF_A_CORE = 0.005
_OTHERS_S = 5.0
# What the launcher waits at most for the observer's last look, once all ranks have ended.
_LAST_LOOK_S = 5.0


class Orders(NamedTuple):
    """The observer's task."""

    every_s: float = EVERY_S  # 0: only the first sample, which shows the rank's host and devices
    stall_timeout_s: Optional[float] = None  # None: the ranks watch themselves
    ends_stalled: bool = False
    answered: Optional[str] = None  # the request for stacks that was there before the ranks began
    command: Sequence[str] = ()  # of the user's own, whose progress is read; none for a task
    rules: Rules = Rules()  # about ranks of such a command that do nothing
    idle_device_s: float = 600.0  # after which unused GPUs are reported
    progress: str = ""  # the regular expression by which the job has it read


class Observation:
    """The observer as the launcher sees it."""

    def __init__(self, pid: int, tells_end: int, outlived: int) -> None:
        self._pid, self._tells_end, self._outlived = pid, tells_end, outlived
        self._ended_ranks: Set[int] = set()

    def has_outlived(self, rank: int) -> bool:
        """Return whether the observer has ended this rank because it lived on after the work was done."""
        while select.select([self._outlived], [], [], 0)[0]:
            data = os.read(self._outlived, _RANK_BYTES)
            if not data:
                break
            self._ended_ranks.add(int.from_bytes(data, "big"))
        return rank in self._ended_ranks

    def finish(self) -> None:
        """Let the observer look a last time, now that the ranks have ended, and wait for that."""
        os.close(self._tells_end)
        deadline = clock.monotonic() + _LAST_LOOK_S
        while processes.look(self._pid) is not None and clock.monotonic() < deadline:
            if self._pid in processes.reap():
                return
            clock.sleep(_SHORT_S)


def begin(paths: RunPaths, ranks: Sequence[Watched], held: Stacks, orders: Orders) -> Optional[Observation]:
    """Fork the observer, which ends with this process."""
    parent = os.getpid()
    (ended, tells_end), (outlived, forgives) = os.pipe(), os.pipe()
    try:
        child = os.fork()
    except OSError as error:  # too many processes: the ranks run without an observer
        sys.stderr.write("trainjob: nothing watches what the ranks use: %s\n" % error.strerror)
        return None
    if child != 0:
        os.close(ended)
        os.close(forgives)
        return Observation(child, tells_end, outlived)
    code = 1
    try:
        processes.end_with_parent(signal.SIGKILL, parent)
        processes.take_name(NAME)
        os.close(tells_end)
        _Observer(paths, ranks, held, orders, lambda rank: os.write(forgives, rank.to_bytes(_RANK_BYTES, "big"))).run(
            ended
        )
        code = 0
    except Exception as error:  # noqa: BLE001 - the ranks run on, and the log says why nothing is recorded
        sys.stderr.write("trainjob: what the ranks use is recorded no longer: %s: %s\n" % (type(error).__name__, error))
    finally:
        sys.stderr.flush()
        os._exit(code)


class _Observer:
    def __init__(
        self,
        paths: RunPaths,
        ranks: Sequence[Watched],
        held: Stacks,
        orders: Orders,
        forgive: Callable[[int], object] = lambda _: None,
    ) -> None:
        self._paths, self._ranks, self._held, self._orders = paths, ranks, held, orders
        self._sampler = Sampler(ranks)
        environ = ranks[0].environment
        self._world_size = int(environ[WORLD_SIZE])
        # One for each rank, or one for each node whose ranks the command starts by itself.
        self._launchers = self._world_size // max(1, ranks[0].ranks_per_node)
        self._answered, self._asked = orders.answered, 0
        self._life = {number: _Life(paths, number) for rank in ranks for number in rank.numbers}
        self._script = self._reads_progress()
        self._outliving: Optional[Outliving] = None
        self._stall: Optional[Stall] = None
        self._devices_idle_since: Optional[float] = None
        if orders.command:
            self._outliving = Outliving(paths, ranks, self._launchers, orders.rules, self._write_stacks, forgive)
            if self._script is not None:
                self._stall = Stall(self._script, orders.rules, self._world_size, self._ask_all, self._end_first)

    def _reads_progress(self) -> Optional[ScriptProgress]:
        """Return what reads the progress of the user's command; None unless rank 0 of one is here."""
        first = next((rank for rank in self._ranks if rank.rank == 0), None)
        if first is None or not self._orders.command:
            return None
        from trainjob.launch.reading.recording import ScriptProgress

        # Some programs print on the last rank.
        logs = [self._paths.rank_log(rank) for rank in sorted({0, self._world_size - 1})]
        command, pattern = self._orders.command, self._orders.progress
        try:
            folder: Optional[Path] = Path(os.readlink("/proc/%d/cwd" % first.pid))
        except OSError:  # it has just ended
            folder = None
        started = environment.started(first.environment)
        return ScriptProgress(
            self._paths,
            first.attempt,
            logs,
            command,
            pattern,
            folder,
            counts=self._held.counted,
            started=started,
            start_up=lambda started, updated: stacks.start_up(self._held.noted(), started, updated),
        )

    def run(self, ended: int) -> None:
        """Watch until the other end of the pipe `ended` is closed, or the launcher ends, and this process with it."""
        interval_s = self._sample(_FIRST_S)
        due = look_due = clock.monotonic() + interval_s
        while not select.select([ended], [], [], min(_LOOK_S, max(0.0, due - clock.monotonic())))[0]:
            word = attempts.asked_for_stacks(self._paths)
            if word is not None and word != self._answered:
                self._answer(word)
            if self._script is not None and clock.monotonic() >= look_due:
                began = _cpu_s()
                self._script.look()
                if self._stall is not None:
                    self._stall.look()
                look_due = clock.monotonic() + (_cpu_s() - began) / _MOST_OF_A_CORE
            if self._outliving is not None:
                self._outliving.look()
            if clock.monotonic() >= due:
                interval_s = self._sample(interval_s * 2)
                due = clock.monotonic() + interval_s
        if self._script is not None:
            self._script.look(is_last=True)

    def _sample(self, wished_s: float) -> float:
        """Take a sample, and return the seconds until the next one."""
        began = _cpu_s()
        records = self._sampler.sample()
        is_first = any(record.cpu_cores is None for record in records)
        for record in records if self._orders.every_s or is_first else ():
            self._record(record)
        for record in records:
            self._report_other_world(record)
        self._report_idle_devices(records)
        limit_s = self._orders.stall_timeout_s
        for record in records if limit_s is not None else ():
            idle_s = self._life[record.rank].idle_s(record)
            if idle_s >= (limit_s or 0.0):
                self._report_stall(record.rank, idle_s)
        longest_s = min(self._orders.every_s or EVERY_S, limit_s / 4 if limit_s else EVERY_S)
        return max(min(wished_s, longest_s), (_cpu_s() - began) / _MOST_OF_A_CORE)

    def _record(self, record: UsageRecord) -> None:
        with contextlib.suppress(OSError):  # a full disk: the ranks will report it
            usage.append(self._paths, record)

    def _report_other_world(self, record: UsageRecord) -> None:
        """Report once that a launcher in the command has made a world of its own."""
        life = self._life[record.rank]
        if record.other_world_size is None or life.is_elsewhere:
            return
        life.is_elsewhere = True
        self._record(record)
        sys.stderr.write(
            "trainjob: rank %d has started ranks of another world: its size is %d, and that of the run %d. A command "
            "that starts ranks by itself is started once per node: --command-per node\n"
            % (record.rank, record.other_world_size, self._world_size)
        )
        sys.stderr.flush()

    def _report_idle_devices(self, records: Sequence[UsageRecord]) -> None:
        """Report once that no GPU of these ranks has been used for long, and once more after they were."""
        uses = [device.use for record in records for device in record.devices if device.use is not None]
        if not uses or max(uses) >= _LEAST_USE:
            self._devices_idle_since = None
            return
        now, limit_s = clock.monotonic(), self._orders.idle_device_s
        self._devices_idle_since = since = self._devices_idle_since or now
        if now - since >= limit_s:
            self._devices_idle_since = _REPORTED
            sys.stderr.write(
                "trainjob: no GPU of rank %d%s has been used for %.0f s (idle_timeout_s)\n"
                % (records[0].rank, " and others" if len(records) > 1 else "", now - since)
            )
            sys.stderr.flush()

    def _end_first(self, line: str) -> None:
        with open(str(self._paths.rank_log(0)), "a") as log:
            log.write(line + "\n")
        os.kill(next(one.pid for one in self._ranks if one.rank == 0), signal.SIGKILL)

    def _ask_all(self) -> List[RankStacks]:
        """Have all launchers write down the stacks of their ranks, and return those that came in time."""
        self._asked += 1
        word = "quiet-%d-%d" % (os.getpid(), self._asked)
        with contextlib.suppress(OSError):
            attempts.ask_for_stacks(self._paths, word)
        self._answer(word)
        self._wait_for_others(word)
        every = (stack_records.read(self._paths, rank) for rank in range(self._world_size))
        return [one for one in every if one is not None and one.word == word]

    def _answer(self, word: str) -> Dict[int, RankStacks]:
        """Write down the stacks of the ranks for a request, and return them."""
        self._answered = word
        return self._write_stacks(word)

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
        mine = self._answer(word).get(rank)
        with open(str(self._paths.rank_log(rank)), "a") as log:
            log.write(_report(rank, idle_s, mine))
        pid = next(one.pid for one in self._ranks if rank in one.numbers)
        if self._orders.ends_stalled:
            self._wait_for_others(word)
            os.kill(pid, signal.SIGKILL)

    def _wait_for_others(self, word: str) -> None:
        """Wait until all ranks have written their stacks: ending one ends all."""
        deadline = clock.monotonic() + _OTHERS_S
        while clock.monotonic() < deadline:
            if all(word == stack_records.word(self._paths, rank) for rank in range(self._world_size)):
                return
            clock.sleep(_LOOK_S / 4)


class _Life:
    """The time of a rank's last sign of life: output, CPU time, or work of its device."""

    def __init__(self, paths: RunPaths, rank: int) -> None:
        self._log = paths.rank_log(rank)
        self._log_bytes = -1
        self._since = clock.monotonic()
        self.is_reported = False
        self.is_elsewhere = False  # its processes have formed a world of their own

    def idle_s(self, record: UsageRecord) -> float:
        """Return how long the rank has shown no sign of life, given a new sample."""
        size = self._log.stat().st_size if self._log.exists() else 0
        prints = size != self._log_bytes and not self.is_reported  # the report itself is in the log, too
        self._log_bytes = size
        computes = record.cpu_cores is None or record.cpu_cores >= IDLE_CORES
        if prints or computes or any(device.use for device in record.devices):
            self._since, self.is_reported = clock.monotonic(), False
        return clock.monotonic() - self._since


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
