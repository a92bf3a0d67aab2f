"""The live view on a terminal, and plain lines elsewhere."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from trainjob.backends import mirror
from trainjob.contract import clock, states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.observe.asking import Known, Sparing, StatusQueries, spread
from trainjob.observe.listing import Choice, listed
from trainjob.observe.report.ranks import own_seconds
from trainjob.observe.report.series import Series
from trainjob.observe.status import Snapshot, status
from trainjob.records import job as jobs
from trainjob.records import metrics
from trainjob.records import submission as submissions
from trainjob.records import usage as usage_records
from trainjob.records.failure import tail_of_attempt
from trainjob.records.files import DamagedError
from trainjob.records.job import ContractError
from trainjob.records.measures import RankTimes, rank_times
from trainjob.records.submission import Submission
from trainjob.records.usage import UsageRecord
from trainjob.requests import interface
from trainjob.watch import show, views

_MOST_RUNS = 30
_LINES_OF_ONE = 12
_LINES_OF_LOG = 40
# Seconds between two looks at whether answers have come.
_ARRIVES_S = 0.1


def newest(asking: StatusQueries, paths: RunPaths | None = None) -> list[Snapshot]:
    """Return the newest runs, the newest first; or one run, whatever its age."""
    return [status(paths, asking)] if paths is not None else listed(Choice(limit=_MOST_RUNS), asking)[::-1]


def print_changes(every_s: float, paths: RunPaths | None) -> None:
    """Print a line for each change of a run, until the one run, or all of them, have ended."""
    last: dict[str, str] = {}
    asking = Sparing(every_s)
    while True:
        found = newest(asking, paths)
        for now in found:
            line = views.plain_line(now)
            if last.get(now.id) != line:
                last[now.id] = line
                typer.echo(line)
        if all(now.state not in states.ACTIVE for now in found):
            return
        clock.sleep(spread(every_s))


class Screen:
    """The view on a terminal: the runs, the chosen one among them, and whether it alone is shown."""

    def __init__(self, every_s: float, only: RunPaths | None) -> None:
        self._every_s = every_s
        self._only = only
        self._records = _Records()
        self._asking, self._asking_of_one = Sparing(every_s), Sparing(every_s)
        self.listed: list[Snapshot] = []
        self._chosen = None if only is None else only.id
        self._shows = "all" if only is None else "one"  # all, one, log
        self._message = ""
        self._unconfirmed = ""  # the key that acts when it is pressed again
        # What is known comes first: a scheduler may take its time to answer.
        self.listed = self._seen(Known(), Known())

    def look(self) -> None:
        """List the runs again."""
        self.listed = self._seen(self._asking, self._asking_of_one)

    def _seen(self, asking: StatusQueries, asking_of_one: StatusQueries) -> list[Snapshot]:
        found = newest(asking)
        # An older run than those that are listed, or an element of an array.
        if self._only is not None and self._only.id not in [now.id for now in found]:
            found += newest(asking_of_one, self._only)
        return found

    @property
    def chosen(self) -> int:
        """The number of the chosen run in the list: runs move down as others are submitted."""
        ids = [now.id for now in self.listed]
        return ids.index(self._chosen) if self._chosen in ids else 0

    def stay(self) -> None:
        """Draw and obey keys until the user leaves."""
        console = Console(file=show.raw(sys.stdout))
        with _single_keys(), Live(console=console, screen=True, auto_refresh=False) as live:
            look: _Look | None = _Look(self)
            looked_at = clock.monotonic()
            while True:
                live.update(self._view(), refresh=True)
                left_s = max(0.0, looked_at + self._every_s - clock.monotonic())
                key = _key(left_s if look is None else _ARRIVES_S)
                if key in ("q", "\x03", "\x04"):
                    return
                self.obey(key)
                if look is not None:
                    if look.has_arrived():
                        look, looked_at = None, clock.monotonic()
                elif clock.monotonic() >= looked_at + self._every_s:
                    look = _Look(self)

    def _view(self) -> RenderableType:
        if not self.listed:
            return Text("no runs yet: trainjob submit starts one · q quits")
        now = self.listed[self.chosen]
        if self._shows == "one":
            curves, ranks = self._records.of(now)
            view = views.one_run(now, curves, ranks, _last_lines(now, _LINES_OF_ONE))
        elif self._shows == "log":
            view = views.log(now, _last_lines(now, _LINES_OF_LOG))
        else:
            view = views.all_runs(self.listed, self.chosen)
        return Group(view, Text(show.visible(self._message), style="bold"))

    def obey(self, key: str) -> None:
        """Do what a key stands for, except to quit."""
        if key in ("c", "r") and self.listed:
            self._act(key)
            return
        if key:
            self._message = self._unconfirmed = ""
        if key in ("\x1b[A", "k", "\x1b[B", "j") and self.listed:
            step = -1 if key in ("\x1b[A", "k") else 1
            self._chosen = self.listed[min(max(self.chosen + step, 0), len(self.listed) - 1)].id
        elif key in ("\r", "\n", "l"):
            self._shows = "log" if key == "l" else "one"
        elif key == "\x1b":
            self._shows = "all"

    def _act(self, key: str) -> None:
        """Cancel or resume the chosen run once the user presses the key again."""
        now = self.listed[self.chosen]
        if self._unconfirmed != key:
            self._chosen, self._unconfirmed = now.id, key
            word = {"c": "cancel", "r": "resume"}[key]
            self._message = f"press {key} again to {word} {now.id}, any other key to leave it"
            return
        self._unconfirmed = ""
        try:
            run = interface.run(now.id)
            if key == "c":
                self._message = f"{now.id} is {run.cancel().state}"
            else:
                run.resume()
                self._message = f"{now.id} continues"
        except UserError as error:
            self._message = str(error)
        self._asking, self._asking_of_one = Sparing(self._every_s), Sparing(self._every_s)
        self.look()


class _Look:
    """A look at the runs beside the view, which goes on meanwhile. It ends with this process, whatever it waits for."""

    def __init__(self, screen: Screen) -> None:
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._look, args=(screen,), name="look", daemon=True)
        self._thread.start()

    def _look(self, screen: Screen) -> None:
        try:
            screen.look()
        except Exception as error:  # noqa: BLE001 - raised where the view is drawn
            self._error = error

    def has_arrived(self) -> bool:
        """Return whether the look has ended. Raises what it raised."""
        if self._thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True


class _Records:
    """The curves and ranks that the runs looked at have recorded so far: no line is read twice."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[metrics.Reader, Series, Ranks]] = {}

    def of(self, now: Snapshot) -> tuple[Series, list[tuple[str, str]]]:
        """Return the curves of a run, and the rows of its ranks."""
        if now.id not in self._files:
            self._files[now.id] = (metrics.Reader(now.paths), Series(), Ranks(now.folder))
        lines, curves, ranks = self._files[now.id]
        lines.feed(curves)
        return curves, ranks.until_now()


def _last_lines(now: Snapshot, most: int) -> list[str]:
    """Return the end of rank 0's output, else of the job script's log."""
    paths = RunPaths(now.folder)
    log = paths.rank_log(0) if paths.rank_log(0).exists() else paths.scheduler_log
    return tail_of_attempt(log)[-most:]


@contextmanager
def _single_keys() -> Iterator[None]:
    """Have each key arrive at once and unseen."""
    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)
    tty.setcbreak(stdin)
    try:
        yield
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


def _key(limit_s: float) -> str:
    """Return the key that is pressed within `limit_s`; an empty text without one. Cursor keys are three bytes."""
    stdin = sys.stdin.fileno()
    if not select.select([stdin], [], [], limit_s)[0]:
        return ""
    return os.read(stdin, 3).decode(errors="replace") or "q"  # the terminal is gone


# -- the ranks of a run: the use of each, and its time for its own samples of an update --------------------------------

_MOST_RANKS = 8
# Samples are taken every 30 s; a login node need not be asked for them at every look.
_FETCHED_EVERY_S = 30.0


class Ranks:
    """The newest samples of the first ranks of one run: no line is read twice."""

    def __init__(self, folder: str) -> None:
        self._paths = RunPaths(Path(folder))
        self._fetched_at: float | None = None
        self._ranks = 0
        self._submission: Submission | None = None
        with contextlib.suppress(ContractError, DamagedError, OSError):
            self._ranks = jobs.read(self._paths.job).plan.topology.ranks
            self._submission = submissions.read(self._paths)  # once: a run stays on its machine
        ranks = range(min(self._ranks, _MOST_RANKS))
        self._usage_lines = {rank: usage_records.lines(self._paths, rank) for rank in ranks}
        self._times_lines = {rank: rank_times(self._paths, rank) for rank in ranks}
        self._usage: dict[int, UsageRecord] = {}
        self._times: dict[int, RankTimes] = {}

    def until_now(self) -> list[tuple[str, str]]:
        """Return a row for each rank that has recorded anything in the newest attempt: its name, and its use."""
        if self._fetched_at is None or clock.monotonic() - self._fetched_at >= _FETCHED_EVERY_S:
            with contextlib.suppress(UserError, ContractError, DamagedError, OSError):
                mirror.refresh_usage(self._paths, self._submission)
            self._fetched_at = clock.monotonic()
        self._usage.update((rank, one) for rank, file in self._usage_lines.items() for one in file.new())
        self._times.update((rank, line) for rank, file in self._times_lines.items() for line in file.new())
        usage, times = self._usage, self._times
        attempt = max([*(one.attempt for one in usage.values()), *(line.attempt for line in times.values())], default=0)
        own_s = {
            rank: own_seconds(line.seconds) / line.updates
            for rank, line in times.items()
            if line.attempt == attempt and line.updates > 0
        }
        slowest = max(own_s, key=own_s.__getitem__) if len(own_s) > 1 else None
        rows = []
        for rank in self._usage_lines:
            words = list(_use(usage[rank])) if rank in usage and usage[rank].attempt == attempt else []
            if rank in own_s:
                mark = ", the slowest" if rank == slowest else ""
                words.append(f"{1000 * own_s[rank]:.3g} ms of data and compute an update{mark}")
            rows += [(f"rank {rank}", " · ".join(words))] if words else []
        further = self._ranks - len(self._usage_lines)
        return [*rows, *([("", f"… and {further} more ranks: trainjob usage")] if rows and further else [])]


def _use(one: UsageRecord) -> Iterator[str]:
    yield one.host
    if one.cpu_cores is not None:
        yield f"{one.cpu_cores:.2f} of {one.cpus} CPUs"
    yield show.size(one.memory_bytes)
    for device in one.devices:
        use = "" if device.use is None else f" {device.use:.0%}"
        memory = "" if device.memory_bytes is None else f" {show.size(device.memory_bytes)}"
        yield f"{device.device}{use}{memory}"
