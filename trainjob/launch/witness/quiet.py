"""Ranks that live on without doing anything: after the work is done, or while the others wait.

A rank is still if between two looks no process of it has come or gone, no stack has changed, and next to nothing was
read or written. A rank that is still and computes may be in one long call of a library, so it gets as long as a stall.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Callable, Dict, List, NamedTuple, Optional, Sequence

from trainjob.contract import clock
from trainjob.contract.paths import RunPaths
from trainjob.launch import processes
from trainjob.launch.host import node_name
from trainjob.launch.rank_environment import Watched
from trainjob.records import attempts
from trainjob.records import progress as progress_records
from trainjob.records import stacks as stack_records
from trainjob.records.stacks import RankStacks

if TYPE_CHECKING:
    from trainjob.launch.reading.recording import ScriptProgress

# Waiting threads take less than this; a process that computes takes a hundred times as much.
IDLE_CORES = 0.01
# Between two looks at whether ranks are still.
_CONFIRM_S = 30.0
_PER_LOOK_S = 10.0
_RANKS_PER_S = 20
_MOST_GROUPS = 3  # of ranks at the same place, in a line
_MOST_NAMED = 8

TakeStacks = Callable[[str], Dict[int, RankStacks]]


class Rules(NamedTuple):
    """What the job says about ranks that do nothing."""

    exit_grace_s: float = 60.0
    ends_stalled: bool = False  # on_stall: end
    long_call_s: float = 600.0  # what a rank gets that is still and computes


class Outliving:
    """Ends the ranks of this launcher that live on after the work is done.

    `take` writes down their stacks; `forgive` tells the launcher that a rank's end counts as success.
    """

    def __init__(
        self,
        paths: RunPaths,
        ranks: Sequence[Watched],
        writers: int,
        rules: Rules,
        take: TakeStacks,
        forgive: Callable[[int], object],
    ) -> None:
        self._paths, self._ranks, self._writers, self._rules = paths, ranks, writers, rules
        self._take, self._forgive = take, forgive
        self._every_s = max(min(_PER_LOOK_S, rules.exit_grace_s / 4), writers / _RANKS_PER_S)
        self._due = clock.monotonic() + self._every_s
        self._since = 0.0
        self._why: Optional[str] = None
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
            self._why = None
            return
        printed = sum(self._paths.rank_log(number).stat().st_size for one in alive for number in one.numbers)
        if self._why is None or printed != self._printed:
            self._begin(why, printed, self._take("outliving"), now)
        elif now - self._since >= self._rules.exit_grace_s:
            stacks = self._take("outliving")
            cores = [stack_records.cores_if_still(self._stacks[rank], one) for rank, one in stacks.items()]
            busiest = max((used for used in cores if used is not None), default=0.0)
            if None in cores:
                self._begin(why, printed, stacks, now)
            elif busiest < IDLE_CORES or now - self._since >= self._rules.long_call_s:
                self._end(alive, why, now - self._since)

    def _begin(self, why: str, printed: int, stacks: Dict[int, RankStacks], now: float) -> None:
        self._why, self._printed, self._stacks, self._since = why, printed, stacks, now

    def _work_is_done(self, alive: Sequence[Watched]) -> Optional[str]:
        """Return what was done, if nothing is left to do; None while there is work, as far as can be seen."""
        attempt = alive[0].attempt
        elsewhere = self._writers - len(self._ranks)
        if len(alive) < self._writers and attempts.ended_well(self._paths, attempt) >= elsewhere:
            return "all other ranks had ended"
        progress = progress_records.read(self._paths)
        total = progress.total_updates
        if progress.attempt == attempt and total and progress.durable_update == progress.update == total:
            return "the last update was made and its checkpoint written"
        return None

    def _end(self, alive: Sequence[Watched], why: str, after_s: float) -> None:
        from trainjob.records import outlived
        from trainjob.records.outlived import Outlived

        for rank in alive:
            note = Outlived(rank.attempt, rank.rank, node_name(), round(after_s, 1), why)
            sys.stderr.write("trainjob: %s\n" % note)
            with contextlib.suppress(OSError):  # a full disk: the note is in the log
                outlived.write(self._paths, note)
            self._forgive(rank.rank)
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank.pid, signal.SIGKILL)
        sys.stderr.flush()


class Stall:
    """Tells of a command that has stopped making progress, and ends it if the job says so. For the launcher of rank 0.

    `ask` has all launchers write down the stacks of the `ranks` ranks, and returns those that came in time; `end` notes
    a line and ends rank 0.
    """

    def __init__(
        self,
        script: ScriptProgress,
        rules: Rules,
        ranks: int,
        ask: Callable[[], List[RankStacks]],
        end: Callable[[str], None],
    ) -> None:
        self._script, self._rules, self._ranks, self._ask, self._end = script, rules, ranks, ask, end
        self._stacks: Optional[Dict[int, RankStacks]] = None
        self._confirm_at = 0.0

    def look(self) -> None:
        """Look at how long the command has said nothing, and act on it once that is unusual."""
        silence = self._script.silence()
        if silence is None or silence.idle_s < silence.limit_s:
            if self._stacks is not None:
                self._stacks = None
                self._script.trouble(None)
            return
        now = clock.monotonic()
        if self._stacks is None:
            listed = self._ask()
            self._tell(str(silence), listed)
            self._confirm_at = now + _CONFIRM_S
            self._stacks = {one.rank: one for one in listed}
        elif self._rules.ends_stalled and now >= self._confirm_at:
            before, listed = self._stacks, self._ask()
            self._stacks, self._confirm_at = {one.rank: one for one in listed}, now + _CONFIRM_S
            cores = [
                stack_records.cores_if_still(before[one.rank], one) if one.rank in before else None for one in listed
            ]
            used = [one for one in cores if one is not None]
            if not used or len(used) < len(cores):
                return
            if max(used) < IDLE_CORES or silence.idle_s >= self._rules.long_call_s:
                self._end("trainjob: %s, and nothing moves: ended (on_stall: end)" % (str(silence),))

    def _tell(self, text: str, listed: Sequence[RankStacks]) -> None:
        places = [str(group) for group in stack_records.groups(listed)[:_MOST_GROUPS]]
        silent = sorted(set(range(self._ranks)) - {one.rank for one in listed})
        if silent:
            named = ", ".join(map(str, silent[:_MOST_NAMED])) + (" …" if len(silent) > _MOST_NAMED else "")
            places.insert(0, "no launcher answers for rank %s: its node may be gone, or its launcher killed" % named)
        text = "%s. %s" % (text, "; ".join(places)) if places else text
        self._script.trouble(text)
        sys.stderr.write("trainjob: %s. `trainjob stacks` shows where all ranks are\n" % text)
        sys.stderr.flush()
