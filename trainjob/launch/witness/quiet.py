"""Notes the signs of life of ranks and does what the policy (contract/liveness.py) says where they stop.

Three watches: of each rank by samples of what it uses, of ranks that live on after the work is done, and of a command
without progress. The last two look at stacks, twice: a rank is still if between two looks no process of it has come or
gone, no stack has changed, and next to nothing was read or written.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Sequence, Set

from trainjob.contract import clock, liveness
from trainjob.contract.liveness import IDLE_CORES, STACKS_EVERY_S, SignsOfLife, Silence, StallLimits, silence_of
from trainjob.contract.paths import RunPaths
from trainjob.launch import processes
from trainjob.launch.host import node_name
from trainjob.launch.rank_environment import Watched
from trainjob.records import attempts
from trainjob.records import progress as progress_records
from trainjob.records import stacks as stack_records
from trainjob.records.stacks import RankStacks
from trainjob.records.usage import UsageRecord

if TYPE_CHECKING:
    from trainjob.launch.reading.recording import ScriptProgress

_LEAST_USE = 0.01  # of a device: a driver that only answers a tool shows none
_PER_LOOK_S = 10.0
_RANKS_PER_S = 20
_MOST_GROUPS = 3  # of ranks at the same place, in a line

TakeStacks = Callable[[str], Dict[int, RankStacks]]


class SampledRanks:
    """Reports once each rank of this launcher that shows no sign of life, and unused devices.

    `tell` reports a rank; None for a task, whose ranks watch themselves.
    """

    def __init__(
        self, paths: RunPaths, limits: StallLimits, tell: Optional[Callable[[int, Silence], object]] = None
    ) -> None:
        self._paths, self._limits, self._tell = paths, limits, tell
        self._signs: Dict[int, SignsOfLife] = {}
        self._printed: Dict[int, int] = {}
        self._told: Set[Optional[int]] = set()  # ranks; None: the devices
        self.devices_work = False  # in the last samples

    def look(self, records: Sequence[UsageRecord]) -> None:
        """Note what new samples show, and tell what has stopped."""
        now, self.devices_work = clock.monotonic(), False
        for record in records:
            signs = self._signs[record.rank] = self._note(record, now)
            silence = silence_of(liveness.RANK, signs, now, self._limits)
            if self._tell is not None and silence is not None and record.rank not in self._told:
                self._tell(record.rank, silence)
                self._printed[record.rank] = _size(self._paths, record.rank)  # with the report
            self._remember(record.rank, silence)
        used = [self._signs[record.rank].device for record in records]
        devices = SignsOfLife(device=max((at for at in used if at is not None), default=None))
        silence = silence_of(liveness.DEVICES, devices, now, self._limits)
        if silence is not None and None not in self._told:
            others = " and others" if len(records) > 1 else ""
            text = "no GPU of rank %d%s has been used for %.0f s (idle_timeout_s)"
            _say(text % (records[0].rank, others, silence.for_s))
        self._remember(None, silence)

    def _note(self, record: UsageRecord, now: float) -> SignsOfLife:
        before, printed = self._signs.get(record.rank), _size(self._paths, record.rank)
        uses = [device.use for device in record.devices if device.use is not None]
        works = max(uses, default=0.0) >= _LEAST_USE
        self.devices_work |= works
        signs = before or SignsOfLife(output=now, cpu=now)
        if printed != self._printed.get(record.rank, printed):
            signs = signs._replace(output=now)
        if record.cpu_cores is None or record.cpu_cores >= IDLE_CORES:
            signs = signs._replace(cpu=now)
        self._printed[record.rank] = printed
        # Where its tool says nothing, a device can't be seen.
        return signs._replace(device=None if not uses else now if works or signs.device is None else signs.device)

    def _remember(self, rank: Optional[int], silence: Optional[Silence]) -> None:
        (self._told.discard if silence is None else self._told.add)(rank)


class Outliving:
    """Ends the ranks of this launcher that live on after the work is done.

    `take` writes down their stacks; `forgive` tells the launcher that a rank's end counts as success.
    """

    def __init__(
        self,
        paths: RunPaths,
        ranks: Sequence[Watched],
        writers: int,
        limits: StallLimits,
        take: TakeStacks,
        forgive: Callable[[int], object],
    ) -> None:
        self._paths, self._ranks, self._writers, self._limits = paths, ranks, writers, limits
        self._take, self._forgive = take, forgive
        self._every_s = max(min(_PER_LOOK_S, limits.exit_grace_s / 4), writers / _RANKS_PER_S)
        self._due = clock.monotonic() + self._every_s
        self._began = self._looked_at = 0.0
        self._signs: Optional[SignsOfLife] = None  # None: there is work
        self._stacks: Dict[int, RankStacks] = {}
        self._printed = -1

    def look(self) -> None:
        """Look, every few seconds, and end what has been still for the grace period."""
        now = clock.monotonic()
        if now < self._due:
            return
        self._due = now + self._every_s
        seen = [(rank, processes.look(rank.pid)) for rank in self._ranks]
        alive = [rank for rank, process in seen if process is not None and process.state not in "ZX"]
        why = self._work_is_done(alive) if alive else None
        if why is None:
            self._signs, self._stacks, self._printed = None, {}, -1
            return
        printed = sum(_size(self._paths, number) for one in alive for number in one.numbers)
        if self._signs is None:
            self._signs, self._began, self._looked_at = SignsOfLife(), now, -self._limits.exit_grace_s
        if printed != self._printed:
            self._printed, self._signs = printed, self._signs.seen(now, ["output"])
        if now - self._looked_at >= self._limits.exit_grace_s:
            stacks = self._take("outliving")
            self._signs = self._signs.seen(now, stack_records.signs_of_life(self._stacks, stacks))
            self._stacks, self._looked_at = stacks, now
        if silence_of(liveness.DONE, self._signs, now, self._limits) is not None:
            self._end(alive, why, now - self._began)

    def _work_is_done(self, alive: Sequence[Watched]) -> Optional[str]:
        """Return what was done, if nothing is left to do; None while there is work, as far as can be seen."""
        attempt = alive[0].attempt
        elsewhere = self._writers - len(self._ranks)
        if len(alive) < self._writers and attempts.ended_well(self._paths, attempt) >= elsewhere:
            return "all other ranks had ended"
        progress = progress_records.read(self._paths)
        total = progress.total_updates
        is_at_end = progress.durable_update == progress.update == total and not progress.may_be_of_epoch
        if progress.attempt == attempt and total and is_at_end:
            return "the last update was made and its checkpoint written"
        return None

    def _end(self, alive: Sequence[Watched], why: str, after_s: float) -> None:
        from trainjob.records import outlived
        from trainjob.records.outlived import Outlived

        for rank in alive:
            note = Outlived(rank.attempt, rank.rank, node_name(), round(after_s, 1), why)
            _say(str(note))
            with contextlib.suppress(OSError):  # a full disk: the note is in the log
                outlived.write(self._paths, note)
            self._forgive(rank.rank)
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank.pid, signal.SIGKILL)


class Stall:
    """Reports a command that has stopped making progress, and ends it if the job wants it. For the launcher of rank 0.

    `ask` has all launchers write down the stacks of the `ranks` ranks, and returns those that arrived in time; `end`
    logs a line and ends rank 0; `devices_work` returns whether devices worked in the last sample.
    """

    def __init__(
        self,
        script: ScriptProgress,
        limits: StallLimits,
        ranks: int,
        ask: Callable[[], List[RankStacks]],
        end: Callable[[str], None],
        devices_work: Callable[[], bool] = lambda: False,
    ) -> None:
        self._script, self._limits, self._ranks, self._ask, self._end = script, limits, ranks, ask, end
        self._devices_work = devices_work
        self._forget()

    def _forget(self) -> None:
        self._signs, self._look_at = SignsOfLife(), 0.0
        self._stacks: Dict[int, RankStacks] = {}
        self._told: Set[str] = set()
        self._is_ended = False

    def look(self) -> None:
        """Look at how long the command has made no progress; where that is long, whether anything moves."""
        silence = self._silence()
        if silence is None:
            if self._told:
                self._script.trouble(None)
            self._forget()
            return
        if clock.monotonic() >= self._look_at:
            listed = {one.rank: one for one in self._ask()}
            now = clock.monotonic()
            self._signs = self._signs.seen(now, stack_records.signs_of_life(self._stacks, listed))
            self._stacks, self._look_at = listed, now + STACKS_EVERY_S
            silence = self._silence() or silence
        if silence.kind != liveness.LATE and silence.kind not in self._told:
            self._told.add(silence.kind)
            self._tell(silence.text)
        if silence.ends and not self._is_ended:
            self._is_ended = True
            self._end("trainjob: %s: ended (on_stall: end)" % silence.text)

    def _silence(self) -> Optional[Silence]:
        since = self._script.since_progress()
        if since is None:
            return None
        now, (idle_s, usual_s, longest_s) = clock.monotonic(), since
        limits = self._limits._replace(usual_gap_s=usual_s, longest_gap_s=longest_s)
        signs = self._signs._replace(progress=now - idle_s)
        if self._devices_work():
            self._signs = signs = signs.seen(now, ["device"])
        return silence_of(liveness.COMMAND, signs, now, limits)

    def _tell(self, text: str) -> None:
        listed = list(self._stacks.values())
        places = [str(group) for group in stack_records.groups(listed)[:_MOST_GROUPS]]
        silent = sorted(set(range(self._ranks)) - self._stacks.keys())
        if silent:
            text_of = "no launcher answers for rank %s: its node may be gone, or its launcher killed"
            places.insert(0, text_of % stack_records.named(silent))
        text = "%s. %s" % (text, "; ".join(places)) if places else text
        self._script.trouble(text)
        _say("%s. `trainjob stacks` shows where all ranks are" % text)


def _size(paths: RunPaths, rank: int) -> int:
    with contextlib.suppress(OSError):
        return paths.rank_log(rank).stat().st_size
    return 0


def _say(line: str) -> None:
    sys.stderr.write("trainjob: %s\n" % line)
    sys.stderr.flush()
