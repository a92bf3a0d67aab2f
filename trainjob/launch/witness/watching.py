"""A process beside the ranks watches them.

It records what they use, writes down their stacks on request, reads how far a user's own command is, and names a rank
of such a command that shows no sign of life. It is a separate process, so that neither a tool that hangs with its
device nor a slow file system delays what the launcher owes its ranks. It takes no more than 0.5 % of a core: where a
sample costs more, the next one comes later.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, List, NamedTuple, Optional, Sequence, Set

from trainjob.contract import clock, environment
from trainjob.contract.environment import WORLD_SIZE
from trainjob.contract.liveness import Silence, StallLimits
from trainjob.contract.paths import RunPaths
from trainjob.launch import processes
from trainjob.launch.options import EVERY_S
from trainjob.launch.rank_environment import Watched
from trainjob.launch.witness import stacks
from trainjob.launch.witness.quiet import Outliving, SampledRanks, Stall
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
_FIRST_S = 1.0  # between the first two samples; doubled each time up to the interval
_MOST_OF_A_CORE = 0.005
# What the launcher waits at most for the observer's last look, once all ranks have ended.
_LAST_LOOK_S = 5.0


class Orders(NamedTuple):
    """The observer's task."""

    every_s: float = EVERY_S  # 0: only the first sample, which shows the rank's host and devices
    limits: StallLimits = StallLimits()
    answered: Optional[str] = None  # the request for stacks that was there before the ranks began
    command: Sequence[
        str
    ] = ()  # of the user's own, whose progress is read; none for a task: its ranks watch themselves
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
        self._elsewhere: Set[int] = set()  # ranks whose processes have formed a world of their own
        self._script = self._reads_progress()
        self._outliving: Optional[Outliving] = None
        self._stall: Optional[Stall] = None
        limits, tell = orders.limits, self._report_silent if orders.command else None
        self._sampled = SampledRanks(paths, limits, tell)
        if orders.command:
            self._outliving = Outliving(paths, ranks, self._launchers, limits, self._write_stacks, forgive)
        if self._script is not None:
            end, works = self._end_first, lambda: self._sampled.devices_work
            self._stall = Stall(self._script, limits, self._world_size, self._ask_all, end, works)

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
        self._sampled.look(records)
        longest_s = min(self._orders.every_s or EVERY_S, self._orders.limits.stall_timeout_s / 4)
        return max(min(wished_s, longest_s), (_cpu_s() - began) / _MOST_OF_A_CORE)

    def _record(self, record: UsageRecord) -> None:
        with contextlib.suppress(OSError):  # a full disk: the ranks will report it
            usage.append(self._paths, record)

    def _report_other_world(self, record: UsageRecord) -> None:
        """Report once that a launcher in the command has made a world of its own."""
        if record.other_world_size is None or record.rank in self._elsewhere:
            return
        self._elsewhere.add(record.rank)
        self._record(record)
        sys.stderr.write(
            "trainjob: rank %d has started ranks of another world: its size is %d, and that of the run %d. A command "
            "that starts ranks by itself is started once per node: --command-per node\n"
            % (record.rank, record.other_world_size, self._world_size)
        )
        sys.stderr.flush()

    def _end_first(self, line: str) -> None:
        with open(str(self._paths.rank_log(0)), "a") as log:
            log.write(line + "\n")
        os.kill(next(one.pid for one in self._ranks if one.rank == 0), signal.SIGKILL)

    def _ask_all(self) -> List[RankStacks]:
        """Have all launchers write down the stacks of their ranks, and return those that came in time."""
        self._asked += 1
        word = stack_records.request(self._paths, "quiet-%d-%d-" % (os.getpid(), self._asked))
        self._answer(word)
        stack_records.wait(self._paths, self._world_size, word)
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

    def _report_silent(self, rank: int, silence: Silence) -> None:
        """Report the rank in its log, keep the stacks of all ranks, and end it if the job wants that."""
        word = stack_records.request(self._paths, "stall-%d-" % self._ranks[0].attempt)
        mine = self._answer(word).get(rank)
        with open(str(self._paths.rank_log(rank)), "a") as log:
            log.write(_report(rank, silence, mine))
        pid = next(one.pid for one in self._ranks if rank in one.numbers)
        if silence.ends:
            stack_records.wait(self._paths, self._world_size, word)
            os.kill(pid, signal.SIGKILL)


def _report(rank: int, silence: Silence, mine: Optional[RankStacks]) -> str:
    lines: List[str] = [
        "trainjob: rank %d has shown no sign of life for %.0f s (--stall-timeout-s): %s. `trainjob stacks` shows where "
        "all ranks are; its own processes:" % (rank, silence.for_s, silence.text)
    ]
    for one in mine.processes if mine is not None else ():
        lines.append("process %d (%s): %s" % (one.pid, one.state, one.command))
        lines += ["  %s" % line for line in (one.stack or "no Python stack").splitlines()]
    return "\n".join(lines) + "\n"


def _cpu_s() -> float:
    return sum(os.times()[:4])
