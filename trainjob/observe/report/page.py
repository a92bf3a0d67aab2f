"""One self-contained HTML page about a run, or about several compared: no request, no script, light and dark."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from operator import itemgetter
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from trainjob.backends import registry
from trainjob.cluster import slurm_text
from trainjob.cluster.merging import by_setting
from trainjob.contract import package
from trainjob.contract.batch import share
from trainjob.contract.paths import RunPaths
from trainjob.observe.report import drawings, rows, startup
from trainjob.observe.report.ranks import ranks
from trainjob.observe.report.report import Report
from trainjob.observe.report.series import Mark, Series
from trainjob.planning.picture import replicas_of
from trainjob.records import checkpoints, events, failure, software, stacks, usage
from trainjob.records import job as jobs
from trainjob.records import progress as progress_record
from trainjob.records.events import Attempt, Event
from trainjob.records.files import DamagedError, read_first
from trainjob.records.job import Plan
from trainjob.records.measures import PHASES
from trainjob.records.submission import Submission

Rows = Sequence[tuple[str, str]]
# As many curves as a drawing has colors.
_MOST_RANKS = len(drawings.COLORS)
# The slowest ranks come first.
_MOST_ROWS = 16
_MOST_SCRIPT_BYTES = 1 << 20


@dataclass(frozen=True)
class Described:
    """A run, as the page takes it: the figures that `trainjob report` prints, and what the folder says beside them."""

    paths: RunPaths
    report: Report
    figures: Rows
    facts: Rows  # cluster, commit, times: what only the submission knows
    curves: Series


def described(paths: RunPaths, report: Report, curves: Series, submission: Submission | None) -> Described:
    """Return a run as the page needs it."""
    facts = [("cluster", jobs.read(paths.job).plan.cluster)]
    if submission is not None:
        facts += registry.identify(submission.backend, submission.native).items()
        facts.append(("submitted", submission.submitted_at))
        facts.append(("commit", submission.project.get("commit") or "none: the project is not under git, or has none"))
        image = events.image(list(report.events)) or submission.image_digest
        if image:
            facts.append(("image", image))
    # Hosts that differ from the first are named among the figures.
    versions = next((host.packages for host in software.recorded(paths)), {})
    facts += [(f"version of {name}", version) for name, version in versions.items()]
    facts += [("attempts", str(report.attempts)), ("run directory", report.folder)]
    return Described(paths, report, list(rows.figures(report)), facts, curves)


def of_run(run: Described) -> str:
    """Return the page of one run."""
    curves = run.curves
    record = jobs.read(run.paths.job)
    listed = ranks(run.paths, run.report.instances)
    settings, origins = by_setting(record.request.job), record.request.origins
    scripts = filter(Path.is_file, (run.paths.job_script, run.paths.batch_script))
    script = next((read_first(path, _MOST_SCRIPT_BYTES) for path in scripts), b"")
    return render(
        "run.html.j2",
        title=f"{run.report.name} · {run.report.state or 'not started'}",
        run=run,
        topology=record.plan.topology,
        batch=record.plan.batch,
        hosts=hosts_of(record.plan, events.attempts(list(run.report.events))),
        drawings=drawings.of_run(curves),
        usage=drawings.of_usage(
            {rank: usage.lines(run.paths, rank).new() for rank in range(min(_MOST_RANKS, run.report.instances))}
        ),
        failed=failure.read(run.paths) if run.report.cause is not None or run.report.exit_code else None,
        stacks=stacks.groups([one for rank in range(run.report.instances) if (one := stacks.read(run.paths, rank))]),
        ranks=sorted(listed, key=lambda rank: -rank.own_s)[:_MOST_ROWS],
        phases=PHASES,
        of_ranks=drawings.of_ranks(listed, _MOST_RANKS),
        notes=_notes(curves, run.report),
        goodput=run.report.goodput,
        startups=run.report.startups,
        startup_parts=startup.parts_of(run.report.startups),
        colors=drawings.COLORS,
        events=happenings(run.paths, curves.marks),
        checkpoints=_checkpoints(run.paths),
        settings=[(key, _text(value), origins.get(key, "")) for key, value in sorted(settings.items())],
        warnings=record.plan.warnings,
        script=script.decode(errors="replace"),
    )


def of_runs(runs: Sequence[Described]) -> str:
    """Return the page that compares runs: settings that differ, then curves, then figures with their spread."""
    curves = {run.paths.id: run.curves for run in runs}
    requests = {run.paths.id: by_setting(jobs.read(run.paths.job).request.job) for run in runs}
    speeds = [(name, one.speed()) for name, one in curves.items()]
    keys = sorted({key for request in requests.values() for key in request})
    settings = [(key, [_text(request.get(key, "default")) for request in requests.values()]) for key in keys]
    return render(
        "runs.html.j2",
        title=f"{len(runs)} runs compared",
        runs=runs,
        differing=[(key, values) for key, values in settings if len(set(values)) > 1],
        drawings=drawings.of_runs(curves),
        speeds={name: "{1:,.0f} ({0:,.0f} to {2:,.0f})".format(*spread) if spread else "" for name, spread in speeds},
    )


def render(template: str, **values: object) -> str:
    """Return a page of the folder templates/report."""
    folder = package.companion("templates") / "report"
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)


def _notes(curves: Series, report: Report) -> list[str]:
    notes = []
    if curves.repeated_updates:
        notes.append(f"{curves.repeated_updates} updates were trained again after interruptions")
    if report.damaged_lines:
        notes.append(f"{report.damaged_lines} damaged lines of metrics.jsonl were skipped")
    spread = curves.speed()
    if spread is not None:
        speed = "median {1:,.0f}, 90 % of intervals in {0:,.0f} to {2:,.0f}".format(*spread)
        notes.append(f"samples/s per logging interval: {speed}")
    return notes


def _checkpoints(paths: RunPaths) -> list[tuple[str, str, str]]:
    """Return folder, size and digest of the weights of every checkpoint, from its index. The files are not read."""
    listed = []
    for folder in checkpoints.folders(paths.checkpoints):
        files = checkpoints.files_of(folder)
        # The weights of a model in parts: the first part stands for all.
        weights = [name for name in sorted(files or {}) if name.startswith(checkpoints.MODEL.partition(".")[0])]
        if files is None or not weights:
            listed.append((folder.name, "damaged index", ""))
        else:
            megabytes = sum(file.bytes for file in files.values()) / 1e6
            listed.append((folder.name, f"{megabytes:,.1f} MB", files[weights[0]].sha256[:16]))
    return listed


def _text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


# -- the plan: hosts, their instances, each with its samples, replicas and devices -----------------------------------

# A drawing of more than these would be longer than anybody reads.
MOST_HOSTS, MOST_INSTANCES = 16, 16


@dataclass(frozen=True)
class Instance:
    """One instance. `first` and `size` are percentages of the global batch; None for a command of the user's own."""

    name: str
    samples: str
    first: float | None
    size: float | None
    replicas: list[str]


@dataclass(frozen=True)
class Host:
    """One host with the instances that are drawn, and the number of those that are not."""

    name: str
    instances: list[Instance]
    further: int


def hosts_of(plan: Plan, attempts: Sequence[Attempt] = ()) -> list[Host]:
    """Return the first hosts of a plan, under the names of the nodes that the newest attempt got, if it noted them."""
    each = plan.topology.instances_of_hosts
    used = slurm_text.expand(attempts[-1].nodes) if attempts and attempts[-1].nodes else []
    names = (used if len(used) == len(each) else slurm_text.expand(plan.topology.hosts))[:MOST_HOSTS]
    drawn = []
    for name, first, count in zip(names, accumulate(each, initial=0), each, strict=False):
        shown = range(min(count, MOST_INSTANCES))
        instances = [_instance(plan, first + local, local) for local in shown]
        drawn.append(Host(name, instances, count - len(shown)))
    return drawn


def _instance(plan: Plan, index: int, local: int) -> Instance:
    name, replicas = f"instance {index}", replicas_of(plan.topology, index, local)
    if plan.batch is None:
        return Instance(name, "", None, None, replicas)
    whole, count = plan.batch.global_batch, plan.topology.instances
    first, end = share(whole, count, index)
    return Instance(name, f"D[{first}:{end}]", 100 * first / whole, 100 * (end - first) / whole, replicas)


# -- the events of a run, in order and in words: attempts, signals, nodes avoided, checkpoints skipped ------------

_SIGNALS = {
    **{name: f"asked to end ({name})" for name in events.TO_END},
    "USR1": "asked to write a checkpoint and stop (USR1)",
}

_CONTINUED = "continued from the checkpoint of update {}"
_FORMAT = "%Y-%m-%d %H:%M:%S"  # UTC


@dataclass(frozen=True)
class Happening:
    """One row. `time` is empty if no file gives a time."""

    time: str
    attempt: int | None
    text: str


def happenings(paths: RunPaths, marks: Sequence[Mark] = ()) -> list[Happening]:
    """Return what has happened, oldest first; of each attempt, what is undated follows what is dated.

    Job scripts note when attempts begin and end, `marks` when their ranks began and stopped to train.
    """
    listed = (event for event in events.read(paths) if event.what not in (events.LAUNCH, events.COMPILED))
    dated = [(event.attempt, event.at, _sentence(event)) for event in listed]
    for mark in marks:
        begins = _CONTINUED.format(mark.update) if mark.update else "training begins"
        stops = f"stops on request after update {mark.update}; its checkpoint is written"
        dated.append((mark.attempt, mark.at, stops if mark.kind == "stop" else begins))
    rows = [
        Happening(datetime.fromtimestamp(at, UTC).strftime(_FORMAT), attempt, text)
        for attempt, at, text in sorted(dated, key=itemgetter(0, 1))
    ]
    for node in events.excluded_nodes(paths):
        number = int(node["attempt"]) if node["attempt"].isdecimal() else None
        rows.append(Happening("", number, f"avoids node {node['node']}: {node['why']}"))
    # Each attempt overwrites these files, so that they tell of the newest alone.
    with contextlib.suppress(DamagedError):
        progress, failed = progress_record.load(paths), failure.load(paths)
        if progress is not None:
            texts = [f"checkpoint skipped: {line}" for line in progress.passed_over]
            if progress.began_at and progress.attempt not in {mark.attempt for mark in marks}:
                texts.insert(0, _CONTINUED.format(progress.began_at))
            if progress.checkpoints_not_written:
                texts.append(f"{progress.checkpoints_not_written} checkpoints could not be written")
            if failed is not None:
                texts.append(failed.how)
            rows += [Happening("", progress.attempt, text) for text in texts]
    return sorted(rows, key=lambda row: row.attempt or 0)


def _sentence(event: Event) -> str:
    if event.what == events.BEGAN:
        return f"attempt {event.attempt} begins" + (f" on {event.detail}" if event.detail else "")
    if event.what == events.SIGNAL:
        return _SIGNALS.get(event.detail, f"signal {event.detail}")
    if event.what == events.ASKED:
        return f"a handler of a rank gets {event.detail}: asked to stop"
    if event.what == events.BYPASSED:
        name, _, who = event.detail.partition(" ")
        return f"{name} goes past the job script, to {who}"
    if event.what == events.IMAGE:
        return f"runs in image {event.detail}"
    if event.what == events.RETRY:
        what, _, option = event.detail.partition(" ")
        return f"ran out of {'memory' if what == 'mem' else 'time'}: the next attempt asks for {option}"
    if event.what == events.LOST:
        return "killed without a word: this is its last sign of life"
    state, code, why = events.parse_end(event)
    return f"ends: {state}" + (f", exit code {code}" if code else "") + (f": {why}" if why else "")
