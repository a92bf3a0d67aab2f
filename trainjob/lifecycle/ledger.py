"""The ledger of device-hours: each run at most, until it has ended, and then what it has cost.

A run is charged before it is handed over, under one lock, so that two commands at once can't both have what is left of
a budget. The file is in the user's data folder, counts runs on all clusters, and keeps those that are removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from trainjob.contract import clock, states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths, home
from trainjob.records.files import only_owner_writes, parse_json

if TYPE_CHECKING:
    from trainjob.observe.status import Snapshot


class OverBudgetError(UserError):
    """A run that may cost more than is left of a budget."""

    code = "over-budget"


class Limit(NamedTuple):
    """A budget, whose runs it counts, and where it is stated."""

    hours: float
    device: str
    per: str | None  # day, week or month; None: all runs ever
    origin: str
    cluster: str | None = None  # runs on this cluster alone
    folder: str | None = None  # runs of projects in this folder alone

    def counts(self, project: object) -> bool:
        """Return whether it counts runs of the project in that folder."""
        return self.folder is None or Path(str(project)).is_relative_to(self.folder)

    def __str__(self) -> str:
        """Return it in words: 200 GPU-hours a day (budget in config.yaml)."""
        per = f" a {self.per}" if self.per else ""
        return f"{self.hours:,g} {self.device}-hours{per} (budget in {self.origin})"


class Charge(NamedTuple):
    """What a submission may cost, who pays, and the budgets that must hold it.

    `again`: of a run that has begun before, it or those of its elements that begin once more. `beside`: its directive
    that asks for devices which are not counted. `paid_by`: the project of the reservation that holds its nodes.
    """

    device: str  # GPU or IPU
    devices: int  # of all elements of an array
    hours: float  # device-hours of one start, of all elements; infinite: no time limit
    starts: int  # how often it may start
    cluster: str
    project: str
    limits: Sequence[Limit]
    again: Sequence[RunPaths] = ()
    beside: str | None = None
    paid_by: str | None = None

    @property
    def most(self) -> float:
        """The most that it may cost, in device-hours."""
        return self.hours * self.starts


Row = dict[str, Any]

_MOST = 1e300  # a float holds it
_WITHIN_S = {"day": 86_400.0, "week": 7 * 86_400.0, "month": 30 * 86_400.0}


@contextlib.contextmanager
def charged(paths: RunPaths, charge: Charge | None) -> Iterator[Callable[[], None]]:
    """Charge a run, at most, beside what it has been charged before. Yield what is called when it may begin.

    An error before that call, and NotSubmittedError after it, leave the ledger as it was. Raises OverBudgetError.
    """
    if charge is None or not (charge.devices or charge.limits):
        yield lambda: None
        return
    from trainjob.backends.base import NotSubmittedError  # loads ssh, which `plan` does not need

    before, has_begun = _charge(paths, charge), False

    def begins() -> None:
        nonlocal has_begun
        has_begun = True

    try:
        yield begins
    except BaseException as error:
        if not has_begun or isinstance(error, NotSubmittedError):
            with contextlib.suppress(UserError, OSError), _opened("a+") as ledger:
                _append(ledger, before)
        raise


def _charge(paths: RunPaths, charge: Charge) -> Row:
    """Write the run into the ledger, and return its row of before, or one of a run that has cost nothing."""
    with _opened("a+") as ledger:
        rows = _read(ledger)
        is_known = paths.id in rows
        for run, one in rows.items() if charge.limits or is_known else ():
            if outcome := _outcome(one):
                _append(ledger, {"run": run, **outcome})
                one.update(outcome)
        before = rows.pop(paths.id, {"run": paths.id, "most": 0.0, "spent": 0.0, "ended_at": clock.time()})
        # Of a run that has not ended, as of an array whose other elements run, all that it may still cost.
        held = _hours(before)
        for limit in charge.limits:
            if problem := over(limit, charge, _sum(limit, rows.values()) + held):
                raise problem
        row = {
            "run": paths.id,
            "folder": str(paths.folder),
            "cluster": charge.cluster,
            "project": charge.project,
            **({} if charge.paid_by is None else {"paid_by": charge.paid_by}),
            "device": charge.device,
            "attempts": {_part(one): _attempts(one) for one in charge.again} if charge.again else None,
            "before": _finite(held),
            "most": _finite(held + charge.most),
        }
        _append(ledger, row)
        return before


def settle(paths: RunPaths) -> None:
    """Note what a run has cost that has ended, before it is removed."""
    with contextlib.suppress(UserError, OSError):
        _close(paths, _outcome)


def take_back(paths: RunPaths) -> None:
    """Note that a run has never begun whose submission was cut short, and can't begin any more. Raises UserError."""
    _close(paths, lambda row: {"spent": row.get("before") or 0.0, "ended_at": clock.time()})


def release(now: Snapshot) -> None:
    """Charge a run whose submission was cut short, and whose job `now` has not found, no more than has run of it."""
    has_no_job = now.state in (states.LOST, states.CANCELLED)
    if has_no_job and now.submission is not None and now.submission.native is None:
        with contextlib.suppress(UserError):
            _close(now.paths, lambda row: _cost(row, now))


def _close(paths: RunPaths, cost_of: Callable[[Row], dict[str, float]]) -> None:
    """Note what a run that is charged has cost, by its row, and when it ended, if that is known."""
    if _file().exists():
        with _opened("a+") as ledger:
            row = _read(ledger).get(paths.id)
            if row is not None and (cost := cost_of(row)):
                _append(ledger, {"run": paths.id, **cost})


def used(limits: Sequence[Limit]) -> list[tuple[Limit, float]]:
    """Return each budget with the device-hours that are charged to it now. Raises UserError."""
    rows: dict[str, Row] = {}
    if limits and _file().exists():
        with _opened("r") as ledger:
            rows = {run: {**row, **_outcome(row)} for run, row in _read(ledger).items()}
    return [(limit, _sum(limit, rows.values())) for limit in limits]


def over(limit: Limit, charge: Charge, charged: float) -> OverBudgetError | None:
    """Return the error of a submission that may cost more than is left of a budget; None where it fits."""
    left, word = max(limit.hours - charged, 0.0), f"{charge.device}-hours"
    if charge.device != limit.device or (charge.most <= left and charge.beside is None):
        return None
    by_hand = "or submit it yourself at a terminal, with --over-budget"
    if charge.beside is not None:
        most = f"directives.{charge.beside} may take {charge.device}s beside the {charge.devices} of the plan"
        counted = (
            "give --instances" if charge.devices else "state in the cluster file what its nodes have (accelerator)"
        )
        return OverBudgetError(f"the budget is {limit}, and {most}", f"Take it out and {counted}; {by_hand}")
    if math.isinf(charge.hours):
        most = f"this job has no time limit, so its {charge.devices} {charge.device}s may cost any amount"
        return OverBudgetError(f"the budget is {limit}, and {most}", f"Give --time-limit; {by_hand}")
    starts = f" in {charge.starts} starts of {charge.hours:,.2f}" if charge.starts > 1 else ""
    endless = "a run without a time limit counts until it has ended"
    counted = endless if math.isinf(charged) else f"{charged:,.2f} are already charged"
    text = f"this job may cost {charge.most:,.2f} {word}{starts}, but {left:,.2f} of {limit} are left; {counted}"
    fitting, cure = int(left // charge.hours), "Wait for running jobs to end; each is then charged only what it used"
    if fitting >= 1 and not charge.again:  # else its time limit and starts are as they were
        cure = f"Give --max-attempts {fitting}: it then starts at most that many times"
    elif not charge.again and left * 3600 // charge.devices >= 60:
        minutes = int(left * 60 // charge.devices)
        once = " --max-attempts 1" if charge.starts > 1 else ""
        cure = f"Give --time-limit {minutes // 60:02d}:{minutes % 60:02d}:00{once}, or fewer devices"
    return OverBudgetError(text, f"{cure}; {by_hand}")


def _sum(limit: Limit, rows: Iterable[Row]) -> float:
    """Return the hours that rows charge to a budget: those that have ended only if they have within its time."""
    earliest = clock.time() - _WITHIN_S[limit.per] if limit.per else -math.inf
    return sum(
        _hours(row)
        for row in rows
        if row.get("device") == limit.device
        and limit.cluster in (None, row.get("cluster"))
        and limit.counts(row.get("project"))
        and not ("paid_by" in row and limit.counts(row["paid_by"]))
        and float(row.get("ended_at", math.inf)) >= earliest
    )


def _hours(row: Row) -> float:
    """Return what a row charges: infinite for a run without a time limit that has not ended."""
    figure = row["spent"] if "ended_at" in row else row.get("most")
    return math.inf if figure is None else float(figure)


def _finite(hours: float) -> float | None:
    return None if math.isinf(hours) else hours


def _outcome(row: Row) -> dict[str, float]:
    """Return what a run has cost, and when it ended, as far as files tell; empty while it has not, or it is known."""
    paths = RunPaths(str(row.get("folder")))
    if "ended_at" in row or not os.path.isdir(paths.folder):
        return {}
    from trainjob.observe.asking import Known  # `plan` finds no budget, as a rule
    from trainjob.observe.status import statuses

    now = statuses([paths], Known())[0]
    # One that is being submitted at this moment looks like one whose submission was interrupted.
    is_submitted = all(one.submission is not None and one.submission.native is not None for one in now.parts)
    if not is_submitted or now.state not in states.ENDED or any(one.is_held for one in now.parts):
        return {}
    return _cost(row, now)


def _cost(row: Row, now: Snapshot) -> dict[str, float]:
    """Return what a run of which nothing runs has cost, and when it ended; empty if its records are damaged."""
    from trainjob.records import events

    hours, ended_at, of_parts = 0.0, 0.0, row.get("attempts")
    try:
        for part, devices in _charged(now):
            # The earlier ones were charged before, or to the run that this one continues.
            earlier = 0 if of_parts is None else of_parts.get(_part(part), math.inf)
            for attempt in events.attempts(events.read(part)):
                if attempt.number <= earlier:
                    continue
                end = clock.time() if attempt.ended_at is None else attempt.ended_at
                hours += devices * max(0.0, end - attempt.began_at) / 3600
                ended_at = max(ended_at, end)
    except (UserError, OSError):  # a damaged record tells nothing, so it counts at its most
        return {}
    held = math.inf if row.get("before") is None else float(row["before"])
    return {"spent": min(held + hours, _hours(row)), "ended_at": ended_at or clock.time()}


def _charged(now: Snapshot) -> Iterator[tuple[RunPaths, int]]:
    """Yield the parts of a run that are charged, with their devices. A packed array is charged as a whole."""
    from trainjob.kinds import table
    from trainjob.planning.pack import devices_held
    from trainjob.records import job as jobs

    record = jobs.read(now.paths.job)
    job, cluster = table.recorded_job(record), table.recorded_cluster(record)
    for paths in [now.paths] if job.pack is not None else [one.paths for one in now.parts]:
        plan = jobs.read(paths.job).plan
        yield paths, devices_held(cluster, job, plan.topology, plan.servers)


def _part(paths: RunPaths) -> str:
    return "" if paths.element is None else str(paths.element)


def _attempts(paths: RunPaths) -> int:
    """Return how many attempts a run has noted: one that was cancelled while it waited has none."""
    from trainjob.records import events

    return max((one.number for one in events.attempts(events.read(paths))), default=0)


def _file() -> Path:
    return home() / "ledger.jsonl"


@contextlib.contextmanager
def _opened(mode: str) -> Iterator[IO[str]]:
    """Open the ledger: "r", or "a+" while no other command extends it. Raises UserError."""
    path = _file()
    try:
        with only_owner_writes():
            path.parent.mkdir(parents=True, exist_ok=True)
            opened = path.open(mode, encoding="utf-8", errors="replace")
        with opened as ledger:
            if mode != "r":
                fcntl.lockf(ledger, fcntl.LOCK_EX)
            yield ledger
    except OSError as error:
        raise UserError(
            f"the ledger of device-hours {path} can't be {'read' if mode == 'r' else 'written'} ({error.strerror})",
            "make room there, or set XDG_DATA_HOME to a folder that you may write",
        ) from None


def _read(ledger: IO[str]) -> dict[str, Row]:
    """Return the newest row of each run. A line that an interruption has cut is passed over."""
    rows: dict[str, Row] = {}
    ledger.seek(0)
    for line in ledger.read().split("\n"):
        with contextlib.suppress(ValueError):
            row = parse_json(line)
            if _is_sound(row):
                rows[row["run"]] = row if "most" in row else {**rows.get(row["run"], {}), **row}
    return rows


def _is_sound(row: object) -> bool:
    if not isinstance(row, dict) or not isinstance(row.get("run"), str):
        return False
    figures = [row[name] for name in ("spent", "ended_at") if name in row]
    figures += [row[name] for name in ("most", "before") if row.get(name) is not None]
    figures += (row.get("attempts") or {}).values() if isinstance(row.get("attempts") or {}, dict) else [None]
    is_whole = "ended_at" not in row or "spent" in row
    return is_whole and all(type(one) in (int, float) and 0 <= one < _MOST for one in figures)


def _append(ledger: IO[str], row: Row) -> None:
    ledger.write(f"\n{json.dumps(row)}\n")  # not behind a line that an interruption has cut
    ledger.flush()
    os.fsync(ledger.fileno())
