"""Climbs the ladder: plans and prices its jobs, submits one after the other, and stops at the first that fails."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import trainjob
from trainjob.accept import rungs
from trainjob.accept.rungs import AcceptanceProblem, Rank, Result, Rung, StepOutcome
from trainjob.cluster import slurm_text
from trainjob.contract import clock, states
from trainjob.contract.errors import UserError
from trainjob.kinds.lookup import NamedCluster
from trainjob.observe.report.page import render
from trainjob.observe.status import Snapshot, between_looks_s, poll
from trainjob.records.files import load_json, write_atomically, write_json
from trainjob.requests import interface
from trainjob.requests.interface import PlannedJob, Run

PROBE = Path(trainjob.__file__).parent / "train" / "measure" / "probe.py"
MARK = "trainjob-accept "
PASSED, FAILED, SKIPPED, NOT_CLIMBED = "passed", "failed", "skipped", "not climbed"
SITE, ALIKE = "site", "same-training"
_UPDATES, _GRACE_S = 20, 5.0
# Sums in another order, in float32: https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html
_SAME_LOSS = 1e-3
_OF_A_NODE = ("node", "address", "meeting_at")  # another node's differ
_WORSE = 0.5  # of an earlier ladder's figure


@dataclass(frozen=True)
class PlannedStep:
    """A rung with its planned jobs, and what they cost at most: hosts × devices × time limit."""

    name: str
    shows: str
    jobs: Sequence[PlannedJob] = ()
    rung: Rung | None = None
    absent: str = ""

    @property
    def device_hours(self) -> float:
        """The most that it can cost: each job keeps its devices for its whole time limit."""
        return 0.0 if self.name == SITE else sum(_devices(job) * _limit_s(job) for job in self.jobs) / 3600

    def spent(self, seconds: float) -> float:
        """Return the device-hours that it took at most in so many seconds."""
        return min(self.device_hours, max(map(_devices, self.jobs), default=0) * seconds / 3600)


@dataclass(frozen=True)
class AcceptanceRecord:
    """The record of one climb."""

    cluster: str
    climbed_at: str  # ISO 8601
    version: str
    outcomes: list[StepOutcome] = field(default_factory=list)

    @property
    def has_passed(self) -> bool:
        """Whether no rung failed, and all were climbed."""
        return all(outcome.state in (PASSED, SKIPPED) for outcome in self.outcomes)


def _devices(job: PlannedJob) -> int:
    return job.plan.topology.instances


def _limit_s(job: PlannedJob) -> int:
    request = job.prepared.request
    return slurm_text.seconds(request.job.time_limit or request.cluster.time_limit_of(request.job) or "") or 0


def steps(named: NamedCluster, project: Path, hosts: int | None, disk: str, skip: Sequence[str]) -> list[PlannedStep]:
    """Return the ladder of a cluster, with `hosts` as its last rung if they are more than two.

    `project` is a folder for the probe's copy, and `disk` one of every host, for the copy of a data set; the rungs
    named in `skip` are left out. Raises UserError for a rung that is unknown, and for a job that the cluster can't run.
    """
    shutil.copy(PROBE, project / PROBE.name)
    listed = [_planned(named, project, rung) for rung in (*rungs.RUNGS, rungs.staging(disk))]
    listed.insert(0, PlannedStep(SITE, "login, storage, interpreter and directives, without a job", listed[0].jobs))
    listed.append(_same_training(named))
    if hosts is not None and hosts > 2:
        listed.append(_planned(named, project, rungs.over_hosts(hosts)))
    names = [step.name for step in listed]
    for name in skip:
        if name not in names:
            raise UserError(f"--skip {name}: the ladder has no such rung", f"its rungs are {', '.join(names)}")
    return [PlannedStep(step.name, step.shows, absent="left out") if step.name in skip else step for step in listed]


def _planned(named: NamedCluster, project: Path, rung: Rung) -> PlannedStep:
    cluster = named.cluster
    settings = rung.settings(cluster)
    if settings is None:
        return PlannedStep(rung.name, rung.shows, absent=rung.absent)
    if rung.action:
        python = sys.executable if cluster.trains_here else cluster.interpreter or "python3"
        environ = {"ACCEPT_DEVICE": cluster.accelerator, "ACCEPT_MARK": MARK}
        if rung.action == "reduce" and cluster.accelerator == "gpu":
            environ["NCCL_DEBUG"] = "INFO"  # names the transport
        settings.update(command=[python, PROBE.name, rung.action], project=project, untracked=True, env=environ)
    return PlannedStep(
        rung.name, rung.shows, [interface.plan(str(named.path), name=f"accept-{rung.name}", **settings)], rung
    )


def _same_training(named: NamedCluster) -> PlannedStep:
    """Return the rung that trains the same batches on one rank and on two hosts."""
    shows = "two hosts train as one rank does: the losses of the digits task"
    if named.cluster.capacity.most_hosts < 2:
        return PlannedStep(ALIKE, shows, absent=rungs.NO_SECOND)
    common: dict[str, Any] = {"task": "digits-cnn", "updates": _UPDATES, "time_limit": rungs.LIMIT, "log_every": 1}
    one = interface.plan(str(named.path), name="accept-one", instances=1, accumulation=2, **common)
    two = interface.plan(str(named.path), name="accept-two", instances=2, hosts=2, **common)
    return PlannedStep(ALIKE, shows, [one, two])


def climb(
    name: str,
    listed: Sequence[PlannedStep],
    budget_device_hours: float | None,
    folder: Path,
    earlier: AcceptanceRecord | None,
    show: Callable[[StepOutcome], None],
    say: Callable[[str], None],
) -> tuple[AcceptanceRecord, list[str]]:
    """Return the evidence, and what changed since an earlier ladder. Both are in `folder` after every rung.

    After a rung that fails, or that would exceed the budget, no further job is submitted. Raises UserError if the
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
    """Yield the outcome of each rung as it ends; `say` is called with lines about runs."""
    left = float("inf") if budget_device_hours is None else budget_device_hours
    stopped = ""
    for step in listed:
        if step.absent:
            yield StepOutcome(step.name, step.shows, SKIPPED, note=step.absent)
        elif stopped:
            yield StepOutcome(step.name, step.shows, NOT_CLIMBED, note=stopped)
        elif step.device_hours > left:
            stopped = (
                f"{step.name} may cost {step.device_hours:.2f} device-hours, and {left:.2f} of the budget are left"
            )
            yield StepOutcome(step.name, step.shows, NOT_CLIMBED, note=stopped)
        else:
            say(f"{step.name}: {step.shows} …")
            began = clock.monotonic()
            outcome = replace(_climbed(step, say), seconds=clock.monotonic() - began)
            left -= step.spent(outcome.seconds)
            if outcome.state == FAILED:
                stopped = f"the rung {step.name} failed"
            yield outcome


def _climbed(step: PlannedStep, say: Callable[[str], None]) -> StepOutcome:
    try:
        if step.name == SITE:
            found = [AcceptanceProblem(problem.text, problem.cure) for problem in step.jobs[0].check()]
            return _outcome(step, found)
        if step.rung is None:
            return _compared(step, say)
        return _judged(step, step.rung, say)
    except UserError as error:
        return _outcome(step, [AcceptanceProblem(error.text, error.problem.cure)])


def _outcome(
    step: PlannedStep, found: Sequence[AcceptanceProblem], run: str | None = None, **facts: Any
) -> StepOutcome:
    return StepOutcome(step.name, step.shows, FAILED if found else PASSED, run, problems=list(found), **facts)


@contextmanager
def _submitted(job: PlannedJob, say: Callable[[str], None]) -> Iterator[Run]:
    run = job.submit(again=True, check=False)
    say(f"  run {run.id}")
    try:
        yield run
    except BaseException:  # Ctrl-C as well: nothing of the ladder stays behind
        run.cancel(grace_s=_GRACE_S)
        raise


def _judged(step: PlannedStep, rung: Rung, say: Callable[[str], None]) -> StepOutcome:
    job, cancelled_s = step.jobs[0], 0.0
    with _submitted(job, say) as run:
        if rung.is_cancelled:
            cancelled_s = _cancelled_at_work(run)
        now = run.wait()
    log = run.logs()
    ranks = _printed(log)
    result = Result(job.prepared.request.cluster, _devices(job), now, ranks, log, cancelled_s)
    figures, remark = rung.figures(result), rungs.own_addresses(ranks)
    return _outcome(step, rungs.problems(rung, result), run.id, figures=figures, note=remark)


def _cancelled_at_work(run: Run) -> float:
    """Cancel a run once its ranks are at work, and return how long that took, in seconds."""

    def is_at_work_or_over(now: Snapshot) -> bool:
        return now.state not in states.ACTIVE or (now.state == states.RUNNING and bool(_printed(run.logs())))

    poll(run.paths, is_at_work_or_over, lambda: clock.sleep(between_looks_s(run.paths)))
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


def _compared(step: PlannedStep, say: Callable[[str], None]) -> StepOutcome:
    """Train on one rank and on two hosts, and compare the losses of the updates."""
    losses: list[dict[int, float]] = []
    for job in step.jobs:
        with _submitted(job, say) as run:
            now = run.wait()
        if now.state != states.COMPLETED:
            return _outcome(step, [rungs.unexpected(now)], run.id)
        losses.append({line["update"]: line["loss"] for line in run.metrics() if line.get("kind") == "train"})
    one, two = losses
    worst = max((abs(one[at] - two[at]) / max(1e-9, abs(one[at])) for at in one.keys() & two.keys()), default=1.0)
    found = []
    if worst > _SAME_LOSS:
        cure = f"trainjob report {run.id} shows both; trainjob verify finds the first difference on this machine"
        found.append(
            AcceptanceProblem(f"the losses of two hosts differ from those of one rank by up to {worst:.1e}", cure)
        )
    figures = {"relative_difference": worst, "updates": float(len(one.keys() & two.keys()))}
    return _outcome(step, found, run.id, figures=figures)


def against(earlier: AcceptanceRecord, now: AcceptanceRecord) -> list[str]:
    """Return a line for each rung whose state, speed or software is no longer what an earlier ladder found."""
    before = {outcome.rung: outcome for outcome in earlier.outcomes}
    lines = []
    for outcome in now.outcomes:
        old = before.get(outcome.rung)
        if old is None:
            continue
        if old.state != outcome.state:
            lines.append(f"{outcome.rung}: {outcome.state}, and {old.state} on {earlier.climbed_at}")
        for name, value in outcome.figures.items():
            then = old.figures.get(name)
            if isinstance(value, str) and then is not None and then != value and name not in _OF_A_NODE:
                lines.append(f"{outcome.rung}: {name} is {value}, and was {then}")
            if not name.endswith("_per_s") or isinstance(value, str) or not isinstance(then, float):
                continue
            if value < _WORSE * then:
                lines.append(f"{outcome.rung}: {name} is {value:.3g}, and was {then:.3g}: {value / then:.2f} x")
    return lines


def read(path: Path) -> AcceptanceRecord:
    """Return the evidence of an earlier climb. Raises UserError for a file that is none."""
    try:
        values = load_json(path)
        outcomes = [
            StepOutcome(**{**one, "problems": [AcceptanceProblem(**found) for found in one["problems"]]})
            for one in values["outcomes"]
        ]
        return AcceptanceRecord(values["cluster"], values["climbed_at"], values["version"], outcomes)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is not the evidence of a ladder: {error}", "give the ladder.json that an earlier ladder wrote"
        ) from None


def write(folder: Path, evidence: AcceptanceRecord, changes: Sequence[str]) -> None:
    """Write ladder.json and ladder.html into `folder`. Raises UserError if it refuses."""
    title = f"{evidence.cluster} · {verdict(evidence)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "ladder.json", asdict(evidence))
        page = render("ladder.html.j2", title=title, evidence=evidence, changes=changes)
        write_atomically(folder / "ladder.html", page.encode())
    except OSError as error:
        raise UserError(f"{folder} can't be written: {error.strerror}", "name another folder with --output") from None


def verdict(evidence: AcceptanceRecord) -> str:
    """Return what became of the climb, in a few words."""
    failed = next((outcome.rung for outcome in evidence.outcomes if outcome.state == FAILED), None)
    if failed is not None:
        return f"not accepted: {failed}"
    return "accepted" if evidence.has_passed else "not climbed to its end"
