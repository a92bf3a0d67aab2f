"""One self-contained HTML page about a run, or about several compared: no request, no script, light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from trainjob.backends.base import read_submission
from trainjob.cluster.merging import by_setting
from trainjob.contract import package
from trainjob.contract.paths import RunPaths
from trainjob.observe.report import drawings, placement, rows, timeline
from trainjob.observe.report.predicted import measure
from trainjob.observe.report.ranks import ranks
from trainjob.observe.report.report import Report
from trainjob.observe.report.series import Series
from trainjob.records import checkpoints, events, usage
from trainjob.records import job as jobs
from trainjob.records.files import DamagedError, read_json
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
    submission = read_submission(paths)
    facts = [("cluster", jobs.read(paths.job).plan.cluster)]
    if submission is not None:
        facts.append(("submitted", submission.submitted_at))
        facts.append(("commit", submission.project.get("commit") or "none: the project is not under git, or has none"))
        image = events.image(paths) or submission.image_digest
        if image:
            facts.append(("image", image))
    facts += [("attempts", str(report.attempts)), ("run directory", report.folder)]
    return Described(paths, report, list(rows.figures(report)), facts, curves)


def of_run(run: Described) -> str:
    """Return the page of one run."""
    curves = run.curves
    record = jobs.read(run.paths.job)
    listed = ranks(run.paths, run.report.instances)
    return render(
        "run.html.j2",
        title=f"{run.report.name} · {run.report.state or 'not started'}",
        run=run,
        topology=record.plan.topology,
        batch=record.plan.batch,
        hosts=placement.hosts(record.plan),
        drawings=drawings.of_run(curves),
        usage=drawings.of_usage(
            {rank: usage.recorded(run.paths, rank) for rank in range(min(_MOST_RANKS, run.report.instances))}
        ),
        ranks=sorted(listed, key=lambda rank: -rank.own_s)[:_MOST_ROWS],
        phases=PHASES,
        of_ranks=drawings.of_ranks(listed, _MOST_RANKS),
        notes=_notes(curves, run.report),
        goodput=run.report.goodput,
        colors=drawings.COLORS,
        predictions=run.report.predictions,
        events=timeline.events(run.paths, curves.marks),
        checkpoints=_checkpoints(run.paths),
        settings=_settings(record),
        warnings=record.plan.warnings,
        script=_script(run.paths),
    )


def of_runs(runs: Sequence[Described]) -> str:
    """Return the page that compares runs: settings that differ, then curves, then figures with their spread."""
    curves = {run.paths.id: run.curves for run in runs}
    requests = {run.paths.id: by_setting(jobs.read(run.paths.job).request.job) for run in runs}
    return render(
        "runs.html.j2",
        title=f"{len(runs)} runs compared",
        runs=runs,
        differing=_differing(requests),
        drawings=drawings.of_runs(curves),
        speeds={name: _speed(one, "{1:,.0f} ({0:,.0f} to {2:,.0f})") for name, one in curves.items()},
    )


def render(template: str, **values: Any) -> str:
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
    if curves.damaged:
        notes.append(f"{curves.damaged} damaged lines of metrics.jsonl were passed over")
    speed = _speed(curves, "median {1:,.0f}, 90 % of intervals in {0:,.0f} to {2:,.0f}")
    if speed:
        notes.append(f"samples/s per logging interval: {speed}")
    if report.cause is not None:
        notes.append(str(report.cause))
    return notes


def _speed(curves: Series, form: str) -> str:
    spread = curves.speed()
    return "" if spread is None else form.format(*spread)


def _checkpoints(paths: RunPaths) -> list[tuple[str, str, str]]:
    """Return folder, size and digest of the weights of every checkpoint, from its index. The files are not read."""
    rows = []
    for folder in checkpoints.folders(paths.checkpoints):
        try:
            index: Any = read_json(folder / checkpoints.INDEX)
            files = index["files"]
            megabytes = sum(one["bytes"] for one in files.values()) / 1e6
            first = checkpoints.part_names(checkpoints.MODEL, checkpoints.parts_of(index))[0]
            rows.append((folder.name, f"{megabytes:,.1f} MB", files[first]["sha256"][:16]))
        except (TypeError, KeyError, AttributeError, DamagedError):  # whatever a damaged index is made of
            rows.append((folder.name, "damaged index", ""))
    return rows


def _settings(record: jobs.JobRecord) -> list[tuple[str, str, str]]:
    """Return what was requested: setting, value, and where the value came from."""
    origins = record.request.origins
    settings = by_setting(record.request.job)
    return [(key, _text(value), origins.get(key, "")) for key, value in sorted(settings.items())]


def _differing(requests: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """Return each setting that is not the same in all runs, with its value in each."""
    keys = sorted({key for request in requests.values() for key in request})
    rows = [(key, [_text(request.get(key, "default")) for request in requests.values()]) for key in keys]
    return [(key, values) for key, values in rows if len(set(values)) > 1]


def _text(value: Any) -> str:
    return " ".join(str(one) for one in value) if isinstance(value, list) else str(value)


def _script(paths: RunPaths) -> str:
    for path in (paths.job_script, paths.batch_script):
        if path.is_file():
            return Path(path).read_text(encoding="utf-8", errors="replace")
    return ""
