"""Accepts a cluster: plans and prices the steps, runs one after the other, and stops at the first that fails."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import trainjob
from trainjob.accept import steps
from trainjob.accept.steps import Rank, Result, StepOutcome, Trial
from trainjob.contract import clock, states
from trainjob.contract.errors import Problem, UserError
from trainjob.kinds.lookup import NamedCluster
from trainjob.observe.report.page import render
from trainjob.observe.status import Snapshot, poll
from trainjob.records.files import load_json, write_atomically, write_json
from trainjob.requests import interface, submission
from trainjob.requests.interface import PlannedJob, Run

PROBE = Path(trainjob.__file__).parent / "train" / "measure" / "probe.py"
MARK = "trainjob-accept "
PASSED, FAILED, SKIPPED, NOT_RUN = "passed", "failed", "skipped", "not run"
SITE, ALIKE = "site", "same-training"
_UPDATES, _GRACE_S = 20, 5.0
# Sums in another order, in float32: https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html
_SAME_LOSS = 1e-3
_OF_A_NODE = ("node", "address", "meeting_at")  # another node's differ
_WORSE = 0.5  # of an earlier acceptance's figure


@dataclass(frozen=True)
class PlannedStep:
    """A step with its planned jobs, and what they cost at most: hosts × devices × time limit × starts."""

    name: str
    shows: str
    jobs: Sequence[PlannedJob] = ()
    step: Trial | None = None
    absent: str = ""

    @property
    def device_hours(self) -> float:
        """The most that it can cost: each job keeps its devices for its whole time limit, in every start."""
        jobs = [] if self.name == SITE else [(_devices(job), job.prepared.request) for job in self.jobs]
        return sum(count * (one.times.limit_s or 0) * one.job.max_attempts for count, one in jobs) / 3600

    def spent(self, seconds: float) -> float:
        """Return the device-hours that it took at most in so many seconds."""
        return min(self.device_hours, max(map(_devices, self.jobs), default=0) * seconds / 3600)


@dataclass(frozen=True)
class AcceptanceRecord:
    """The record of one acceptance."""

    cluster: str
    tested_at: str  # ISO 8601
    version: str
    outcomes: list[StepOutcome] = field(default_factory=list)

    @property
    def has_passed(self) -> bool:
        """Whether no step failed, and all were run."""
        return all(outcome.state in (PASSED, SKIPPED) for outcome in self.outcomes)

    def as_json(self) -> dict[str, Any]:
        """Return the record for `--json` and acceptance.json."""
        return {**vars(self), "outcomes": [outcome.as_json() for outcome in self.outcomes]}


def _devices(job: PlannedJob) -> int:
    return job.plan.topology.instances


def plan_steps(
    named: NamedCluster, project: Path, hosts: int | None, disk: str, skip: Sequence[str]
) -> list[PlannedStep]:
    """Return the steps of a cluster's acceptance; the last has `hosts` hosts if they are more than two.

    `project` is a folder for the probe's copy, and `disk` one of every host, for the copy of a data set; the steps
    named in `skip` are left out. Raises UserError for a step that is unknown, and for a job that the cluster can't run.
    """
    shutil.copy(PROBE, project / PROBE.name)
    listed = [_planned(named, project, step) for step in (*steps.STEPS, steps.staging(disk))]
    listed.insert(0, PlannedStep(SITE, "login, storage, interpreter and directives, without a job", listed[0].jobs))
    listed.append(_same_training(named))
    if hosts is not None and hosts > 2:
        listed.append(_planned(named, project, steps.over_hosts(hosts)))
    names = [planned.name for planned in listed]
    for name in skip:
        if name not in names:
            raise UserError(f"--skip {name}: no step has that name", f"the steps are {', '.join(names)}")
    return [
        PlannedStep(planned.name, planned.shows, absent="left out") if planned.name in skip else planned
        for planned in listed
    ]


def _planned(named: NamedCluster, project: Path, step: Trial) -> PlannedStep:
    cluster = named.cluster
    settings = step.settings(cluster)
    if settings is None:
        return PlannedStep(step.name, step.shows, absent=step.absent)
    if step.action:
        python = sys.executable if cluster.trains_here else cluster.interpreter or "python3"
        environ = {"ACCEPT_DEVICE": cluster.accelerator, "ACCEPT_MARK": MARK}
        if step.action == "reduce" and cluster.accelerator == "gpu":
            environ["NCCL_DEBUG"] = "INFO"  # names the transport
        settings.update(command=[python, PROBE.name, step.action], project=project, untracked=True, env=environ)
    return PlannedStep(
        step.name, step.shows, [interface.plan(str(named.path), name=f"accept-{step.name}", **settings)], step
    )


def _same_training(named: NamedCluster) -> PlannedStep:
    """Return the step that trains the same batches on one rank and on two hosts."""
    shows = "two hosts train as one rank does: the losses of the digits task"
    if named.cluster.capacity.most_hosts < 2:
        return PlannedStep(ALIKE, shows, absent=steps.NO_SECOND)
    common: dict[str, Any] = {"task": "digits-cnn", "updates": _UPDATES, "time_limit": steps.LIMIT, "max_attempts": 1}
    common["log_every"] = 1
    one = interface.plan(str(named.path), name="accept-one", instances=1, accumulation=2, **common)
    two = interface.plan(str(named.path), name="accept-two", instances=2, hosts=2, **common)
    return PlannedStep(ALIKE, shows, [one, two])


def accept(
    name: str,
    listed: Sequence[PlannedStep],
    budget_device_hours: float | None,
    folder: Path,
    earlier: AcceptanceRecord | None,
    show: Callable[[StepOutcome], None],
    say: Callable[[str], None],
) -> tuple[AcceptanceRecord, list[str]]:
    """Return the evidence, and what changed since an earlier one. Both are in `folder` after every step.

    After a step that fails, or that would exceed the budget, no further job is submitted. Raises UserError if the
    folder can't be written.
    """
    begun = datetime.fromtimestamp(clock.time(), UTC).isoformat(timespec="seconds")
    evidence = AcceptanceRecord(name, begun, trainjob.__version__)
    changes: list[str] = []
    for outcome in outcomes(listed, budget_device_hours, say):
        evidence.outcomes.append(outcome)
        changes = [] if earlier is None else against(earlier, evidence)
        write(folder, evidence, changes)
        show(outcome)
    return evidence, changes


def outcomes(
    listed: Sequence[PlannedStep], budget_device_hours: float | None, say: Callable[[str], None]
) -> Iterator[StepOutcome]:
    """Yield the outcome of each step as it ends; `say` is called with lines about runs."""
    left = float("inf") if budget_device_hours is None else budget_device_hours
    stopped = ""
    for planned in listed:
        if planned.absent:
            yield StepOutcome(planned.name, planned.shows, SKIPPED, note=planned.absent)
        elif stopped:
            yield StepOutcome(planned.name, planned.shows, NOT_RUN, note=stopped)
        elif planned.device_hours > left:
            most = f"{planned.name} may cost {planned.device_hours:.2f} device-hours"
            stopped = f"{most}, and {left:.2f} of the budget are left"
            yield StepOutcome(planned.name, planned.shows, NOT_RUN, note=stopped)
        else:
            say(f"{planned.name}: {planned.shows} …")
            began = clock.monotonic()
            outcome = replace(_outcome_of(planned, say), seconds=clock.monotonic() - began)
            left -= planned.spent(outcome.seconds)
            if outcome.state == FAILED:
                stopped = f"the step {planned.name} failed"
            yield outcome


def _outcome_of(planned: PlannedStep, say: Callable[[str], None]) -> StepOutcome:
    try:
        if planned.name == SITE:
            return _outcome(planned, planned.jobs[0].check())
        if planned.step is None:
            return _compared(planned, say)
        return _judged(planned, planned.step, say)
    except UserError as error:
        return _outcome(planned, error.problems)


def _outcome(planned: PlannedStep, found: Sequence[Problem], run: str | None = None, **facts: Any) -> StepOutcome:
    return StepOutcome(planned.name, planned.shows, FAILED if found else PASSED, run, problems=list(found), **facts)


@contextmanager
def _submitted(job: PlannedJob, say: Callable[[str], None]) -> Iterator[Run]:
    run = Run(submission.submit(job.prepared, again=True, check=False))
    say(f"  run {run.id}")
    try:
        yield run
    except BaseException:  # Ctrl-C as well: none of its jobs stays behind
        run.cancel(grace_s=_GRACE_S)
        raise


def _judged(planned: PlannedStep, step: Trial, say: Callable[[str], None]) -> StepOutcome:
    job, cancelled_s = planned.jobs[0], 0.0
    with _submitted(job, say) as run:
        if step.is_cancelled:
            cancelled_s = _cancelled_at_work(run)
        now = run.wait()
    log = run.logs()
    ranks = _printed(log)
    result = Result(job.prepared.request.cluster, _devices(job), now, ranks, log, cancelled_s)
    figures, remark = step.figures(result), steps.own_addresses(ranks)
    return _outcome(planned, steps.problems(step, result), run.id, figures=figures, note=remark)


def _cancelled_at_work(run: Run) -> float:
    """Cancel a run once its ranks are at work, and return how long that took, in seconds."""

    def is_at_work_or_over(now: Snapshot) -> bool:
        return now.state not in states.ACTIVE or (now.state == states.RUNNING and bool(_printed(run.logs())))

    poll(run.paths, is_at_work_or_over)
    began = clock.monotonic()
    run.cancel(grace_s=_GRACE_S)
    return clock.monotonic() - began


def _printed(log: str) -> list[Rank]:
    """Return what each rank's probe has printed: a later line adds to an earlier one."""
    found: dict[int, dict[str, Any]] = {}
    for line in log.splitlines():
        _, mark, text = line.partition(MARK)
        if mark:
            try:
                values = json.loads(text)
            except ValueError:  # a line that another rank's output has cut
                continue
            found.setdefault(values["rank"], {}).update(values)
    return list(found.values())


def _compared(planned: PlannedStep, say: Callable[[str], None]) -> StepOutcome:
    """Train on one rank and on two hosts, and compare the losses of the updates."""
    losses: list[dict[int, float]] = []
    for job in planned.jobs:
        with _submitted(job, say) as run:
            now = run.wait()
        if now.state != states.COMPLETED:
            return _outcome(planned, [steps.unexpected(now)], run.id)
        losses.append({line["update"]: line["loss"] for line in run.metrics() if line.get("kind") == "train"})
    one, two = losses
    worst = max((abs(one[at] - two[at]) / max(1e-9, abs(one[at])) for at in one.keys() & two.keys()), default=1.0)
    found = []
    if worst > _SAME_LOSS:
        cure = f"trainjob report {run.id} shows both; trainjob verify finds the first difference on this machine"
        found.append(
            Problem(
                "different-losses", f"the losses of two hosts differ from those of one rank by up to {worst:.1e}", cure
            )
        )
    figures = {"relative_difference": worst, "updates": float(len(one.keys() & two.keys()))}
    return _outcome(planned, found, run.id, figures=figures)


def against(earlier: AcceptanceRecord, now: AcceptanceRecord) -> list[str]:
    """Return a line for each step whose state, speed or software is no longer what an earlier acceptance found."""
    before = {outcome.step: outcome for outcome in earlier.outcomes}
    lines = []
    for outcome in now.outcomes:
        old = before.get(outcome.step)
        if old is None:
            continue
        if old.state != outcome.state:
            lines.append(f"{outcome.step}: {outcome.state}, and {old.state} on {earlier.tested_at}")
        for name, value in outcome.figures.items():
            then = old.figures.get(name)
            if isinstance(value, str) and then is not None and then != value and name not in _OF_A_NODE:
                lines.append(f"{outcome.step}: {name} is {value}, and was {then}")
            if not name.endswith("_per_s") or isinstance(value, str) or not isinstance(then, float):
                continue
            if value < _WORSE * then:
                lines.append(f"{outcome.step}: {name} is {value:.3g}, and was {then:.3g}: {value / then:.2f} x")
    return lines


def read(path: Path) -> AcceptanceRecord:
    """Return the evidence of an earlier acceptance. Raises UserError for any other file."""
    try:
        values = load_json(path)
        outcomes = [
            StepOutcome(**{**one, "problems": [Problem(**found) for found in one["problems"]]})
            for one in values["outcomes"]
        ]
        return AcceptanceRecord(values["cluster"], values["tested_at"], values["version"], outcomes)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is not the evidence of an acceptance: {error}",
            "give the acceptance.json that an earlier run wrote",
        ) from None


def write(folder: Path, evidence: AcceptanceRecord, changes: Sequence[str]) -> None:
    """Write acceptance.json and acceptance.html into `folder`. Raises UserError if it refuses."""
    title = f"{evidence.cluster} · {verdict(evidence)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "acceptance.json", evidence.as_json())
        page = render("acceptance.html.j2", title=title, evidence=evidence, changes=changes)
        write_atomically(folder / "acceptance.html", page.encode())
    except OSError as error:
        raise UserError(f"{folder} can't be written: {error.strerror}", "name another folder with --output") from None


def verdict(evidence: AcceptanceRecord) -> str:
    """Return the verdict in a few words."""
    failed = next((outcome.step for outcome in evidence.outcomes if outcome.state == FAILED), None)
    if failed is not None:
        return f"not accepted: {failed}"
    return "accepted" if evidence.has_passed else "not run to its end"
