"""Runs a script of the user's own to its end, and again with interruptions as a site makes them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainjob.contract import states
from trainjob.contract.paths import RunPaths
from trainjob.lifecycle import resume as resuming
from trainjob.lifecycle.cancel import cancel
from trainjob.observe.status import Snapshot
from trainjob.records import updates
from trainjob.records.updates import AT_EVALUATION, AT_SAVE, AT_START, AT_UPDATE, UpdatePaths
from trainjob.render.request import Request
from trainjob.requests.workbench import Workbench
from trainjob.verify.interruptions import NEAR_END, InterruptionPlan, PlannedStop, interrupt
from trainjob.verify.scripts import update_log
from trainjob.verify.scripts.update_log import AttemptLog, resumptions


@dataclass(frozen=True)
class ScriptInterruption:
    """One interruption: how, at which moment of which attempt, and what the script did about it."""

    way: str  # of verify.interruptions.WAYS
    moment: str
    attempt: int
    after: int  # updates of its attempt
    handles: tuple[str, ...]  # of USR1 and TERM
    state: str  # in which the attempt ended
    continued_at: int | None = None  # the update of the uninterrupted run, where that is known


@dataclass(frozen=True)
class TornSave:
    """A save that was killed, and with whose rest the script could not begin again, so that it was put back."""

    attempt: int  # that could not begin
    path: Path
    tail: tuple[str, ...]  # of its log


@dataclass(frozen=True)
class Interrupted:
    """A run that was interrupted. `crashed`: an attempt that failed although nothing had interrupted it."""

    paths: RunPaths
    interruptions: tuple[ScriptInterruption, ...]
    crashed: Snapshot | None
    torn: tuple[TornSave, ...] = ()


def recorded(workbench: Workbench, **settings: Any) -> Request:
    """Return the request with the hook in its ranks, and one thread per rank, so that sums have one order."""
    # The launcher puts the hook on the path of its ranks.
    record = {updates.RECORD_UPDATES: workbench.folder_of_ranks}
    return workbench.vary(**settings, env={"OMP_NUM_THREADS": "1", **workbench.request.job.env, **record})


def most_attempts(stops: int) -> int:
    """Return how many attempts a run on a cluster may make: one after each stop, one more after a torn save."""
    return stops + 2


def interrupted(workbench: Workbench, request: Request, stops: Sequence[PlannedStop]) -> Interrupted:
    """Return the run with as many of these interruptions as it meets."""
    done: list[ScriptInterruption] = []
    torn: list[TornSave] = []
    paths: RunPaths | None = None
    now: Snapshot | None = None
    attempt = 0
    planned: list[PlannedStop | None] = [*stops, None]
    while planned:
        attempt += 1
        stop = planned[0]
        if stop is not None:
            _announce(workbench, stop, paths, attempt)
        paths = _begun(workbench, request, now, attempt)
        seen = None if stop is None else _wait_until_it_waits(workbench, paths, attempt)
        if stop is None or seen is None:
            now = workbench.wait(paths, most_attempts(len(stops)))
            again = None if now.state == states.COMPLETED or not done else _put_back(workbench, done[-1], now)
            if again is None:
                break
            workbench.say("  the save that was killed is put back, to see what else is lost")
            torn.append(again)
            continue
        handles = tuple(seen["handles"])
        following = planned[1]
        if workbench.is_on_cluster and following is not None:
            # Its scheduler may start the next attempt before this one is seen to have ended, and what it saved then.
            _announce(workbench, following, paths, attempt + 1)
        interrupt(paths, stop.way, seen["pid"], takes_usr1="USR1" in handles)
        now = workbench.wait(paths, attempt)
        done.append(ScriptInterruption(stop.way, stop.moment, attempt, seen["update"], handles, now.state))
        after = f"update {seen['update']} of attempt {attempt}"
        workbench.say(f"  {len(done)} of {len(stops)}: {stop.way} at {stop.moment}, after {after}")
        planned.pop(0)
    workbench.publish(*updates.wait_nowhere(workbench.folder))
    assert paths is not None  # noqa: S101 - there was at least one attempt
    assert now is not None  # noqa: S101 - which has ended
    if now.state in states.ACTIVE:  # a scheduler counts starts anew after each `resume`
        cancel(paths, grace_s=0.0)
    return Interrupted(paths, tuple(done), None if now.state == states.COMPLETED else now, tuple(torn))


def _announce(workbench: Workbench, stop: PlannedStop, paths: RunPaths | None, attempt: int) -> None:
    """Have `attempt` wait for this stop, counted from what the run in `paths` has saved so far."""
    at = AT_UPDATE if stop.moment == NEAR_END else stop.moment
    saved = 0 if paths is None else _saved_before(paths)
    after = 0 if at == AT_START else max(1, stop.after - saved)
    workbench.publish(updates.wait_at(workbench.folder, attempt, at, after))


def _put_back(workbench: Workbench, last: ScriptInterruption, now: Snapshot) -> TornSave | None:
    """Undo the save that the last interruption killed; None if the attempt that failed is not the one after it."""
    kept = updates.kept(workbench.folder, last.attempt) if workbench.remote is None else None
    if kept is None or last.moment != AT_SAVE or now.attempt != last.attempt + 1:
        return None
    if kept.copy is not None:
        shutil.copy2(kept.copy, kept.path)
    elif is_of_one_step(kept.path.parent):
        shutil.rmtree(kept.path.parent, ignore_errors=True)
    else:
        kept.path.unlink(missing_ok=True)
    return TornSave(now.attempt, kept.path, tuple(now.failure.tail[-6:]) if now.failure else ())


def is_of_one_step(folder: Path) -> bool:
    """Return whether a folder is named for the step whose checkpoint it holds, as Trainer's checkpoint-12 is."""
    return re.search(r"[-_]\d+$", folder.name) is not None


def _begun(workbench: Workbench, request: Request, now: Snapshot | None, attempt: int) -> RunPaths:
    """Return the run, which has begun, or goes on by `attempt` after one that has ended as `now`."""
    if now is None:
        return workbench.begin(request)
    if now.state not in states.ACTIVE and now.attempt < attempt:  # else its scheduler starts, or has started, it
        resuming.resume(now)
    return now.paths


def drawn(plan: InterruptionPlan, whole: AttemptLog) -> list[PlannedStop]:
    """Return the interruptions at moments that the uninterrupted run had, in the middle of epochs."""
    total = len(whole.updates)
    if not total:
        return []
    happening = {AT_START, AT_UPDATE, NEAR_END}
    happening |= {AT_SAVE for event in whole.named(updates.SAVES) if event.update < total}
    happening |= {AT_EVALUATION for event in whole.named(updates.EVALUATES) if 0 < event.update < total}
    # In the middle of a pass over the data, which is where positions get lost.
    inside = [
        number
        for number in range(1, max(2, total - 1))
        if _pass_of(whole, number - 1) == _pass_of(whole, number) or not whole.named(updates.PASS)
    ]
    return plan.at_moments(total, happening, inside or range(1, total + 1))


def _pass_of(log: AttemptLog, index: int) -> int | None:
    batches = log.updates[index].batches if index < len(log.updates) else ()
    return batches[-1].loader_pass if batches else None


def _saved_before(paths: RunPaths) -> int:
    """Return after how many updates the newest saved state was written, as far as is seen."""
    logs = update_log.read(paths)
    newest = 0
    for one in resumptions(logs[0]) if logs else ():
        newest = max([newest, *((one.start or 0) + event.update for event in one.attempt.named(updates.SAVED))])
    return newest


def _wait_until_it_waits(workbench: Workbench, paths: RunPaths, attempt: int) -> dict[str, Any] | None:
    """Return what rank 0 wrote when it reached the moment of `attempt`; None if that ended before."""
    lines = UpdatePaths(paths).lines(0)

    def waits() -> dict[str, Any] | None:
        new = (line for line in lines.new() if line["event"] == updates.PAUSED and line["attempt"] == attempt)
        return next(new, None)

    return workbench.wait_for(paths, waits, attempt)
