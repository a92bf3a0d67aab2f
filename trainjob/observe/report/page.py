"""One self-contained HTML page about a run, or about several compared: no request, no script, light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from trainjob.backends import registry
from trainjob.cluster.merging import by_setting
from trainjob.contract import package
from trainjob.contract.paths import RunPaths
from trainjob.observe.report import drawings, placement, rows, timeline
from trainjob.observe.report.ranks import ranks
from trainjob.observe.report.report import Report, measure
from trainjob.observe.report.series import Series
from trainjob.records import checkpoints, events, failure, software, stacks, usage
from trainjob.records import job as jobs
from trainjob.records import submission as submissions
from trainjob.records.measures import PHASES

Rows = Sequence[tuple[str, str]]
# As many curves as a drawing has colors.
_MOST_RANKS = len(drawings.COLORS)
# The slowest ranks come first.
_MOST_ROWS = 16


@dataclass(frozen=True)
class Described:
    """A run, as the page takes it: the figures that `trainjob report` prints, and what the folder says beside them."""

    paths: RunPaths
    report: Report
    figures: Rows
    facts: Rows  # cluster, commit, times: what only the submission knows
    curves: Series


def described(paths: RunPaths, report: Report, curves: Series) -> Described:
    """Return a run as the page needs it."""
    submission = submissions.read(paths)
    facts = [("cluster", jobs.read(paths.job).plan.cluster)]
    if submission is not None:
        facts += registry.identify(submission.backend, submission.native).items()
        facts.append(("submitted", submission.submitted_at))
        facts.append(("commit", submission.project.get("commit") or "none: the project is not under git, or has none"))
        image = events.image(paths) or submission.image_digest
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
    scripts = (run.paths.job_script, run.paths.batch_script)
    return render(
        "run.html.j2",
        title=f"{run.report.name} · {run.report.state or 'not started'}",
        run=run,
        topology=record.plan.topology,
        batch=record.plan.batch,
        hosts=placement.hosts(record.plan, events.attempts(list(run.report.events))),
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
        colors=drawings.COLORS,
        predictions=run.report.predictions,
        events=timeline.events(run.paths, curves.marks),
        checkpoints=_checkpoints(run.paths),
        settings=[(key, _text(value), origins.get(key, "")) for key, value in sorted(settings.items())],
        warnings=record.plan.warnings,
        script=next((path.read_text(encoding="utf-8", errors="replace") for path in scripts if path.is_file()), ""),
    )


def of_runs(runs: Sequence[Described]) -> str:
    """Return the page that compares runs: settings that differ, then curves, then figures with their spread."""
    curves = {run.paths.id: run.curves for run in runs}
    requests = {run.paths.id: by_setting(jobs.read(run.paths.job).request.job) for run in runs}
    speeds = [(name, one.speed()) for name, one in curves.items()]
    return render(
        "runs.html.j2",
        title=f"{len(runs)} runs compared",
        runs=runs,
        differing=_differing(requests),
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
    environment.filters["measure"] = measure
    return environment.get_template(template).render(**values)


def _notes(curves: Series, report: Report) -> list[str]:
    notes = []
    if curves.repeated_updates:
        notes.append(f"{curves.repeated_updates} updates were trained again after interruptions")
    if report.damaged_lines:
        notes.append(f"{report.damaged_lines} damaged lines of metrics.jsonl were passed over")
    spread = curves.speed()
    if spread is not None:
        speed = "median {1:,.0f}, 90 % of intervals in {0:,.0f} to {2:,.0f}".format(*spread)
        notes.append(f"samples/s per logging interval: {speed}")
    if report.cause is not None:
        notes.append(str(report.cause))
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


def _differing(requests: Mapping[str, Mapping[str, object]]) -> list[tuple[str, list[str]]]:
    """Return each setting that is not the same in all runs, with its value in each."""
    keys = sorted({key for request in requests.values() for key in request})
    settings = [(key, [_text(request.get(key, "default")) for request in requests.values()]) for key in keys]
    return [(key, values) for key, values in settings if len(set(values)) > 1]


def _text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
