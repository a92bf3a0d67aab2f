"""trainjob report: what a run has done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli import complete
from trainjob.cli.app import examples, new
from trainjob.contract.errors import UserError
from trainjob.watch import show

if TYPE_CHECKING:
    from trainjob.contract.paths import RunPaths
    from trainjob.observe.report import page
    from trainjob.observe.report.goodput import Goodput
    from trainjob.observe.report.report import Report
    from trainjob.observe.report.series import Series

app = new()

Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="Run id, a unique prefix of one, last, or a path.", autocompletion=complete.runs
    ),
]
Runs = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN…",
        help="Run id, a unique prefix of one, last, or a path. Several with --html: a comparison.",
        autocompletion=complete.runs,
    ),
]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write one self-contained page with curves: of a run, or of several."),
]


@app.command(epilog=examples("trainjob report ./copied-run --json", "trainjob report 3nru 7hea --html compared.html"))
def report(runs: Runs, html: Html = None, as_json: show.AsJson = False) -> None:
    """Show the results of a run, from its folder alone."""
    from trainjob.observe import index

    found = [index.find(run) for run in runs]
    if html is not None:
        _write_page(found, html)
    elif len(found) > 1:
        raise UserError("several runs can only be compared on a page", "give --html FILE")
    else:
        print_or_json(found[0], as_json=as_json)


def _write_page(runs: list[RunPaths], target: Path) -> None:
    from trainjob.observe import arrays
    from trainjob.observe.report import page
    from trainjob.records.files import write_atomically

    if not target.parent.is_dir():
        raise UserError(f"--html {target}: there is no folder {target.parent}", f"mkdir -p {target.parent}")
    # The elements of an array are runs to compare.
    each = [element for run in runs for element in arrays.elements(run) or [run]]
    described = [_described(run) for run in each]
    text = page.of_run(described[0]) if len(described) == 1 else page.of_runs(described)
    write_atomically(target, text)
    typer.echo(f"wrote {target}: {len(text.encode()) / 1e6:.1f} MB, one file that needs no network")


def _described(paths: RunPaths) -> page.Described:
    from trainjob.backends import mirror
    from trainjob.observe.report.page import Described
    from trainjob.observe.report.series import Series
    from trainjob.records import events
    from trainjob.records import job as jobs
    from trainjob.records import submission as submissions

    curves = Series()
    report, submission = made(paths, curves=curves), submissions.read(paths)
    with suppress(UserError):  # a warning has named the machine that can't be reached
        mirror.refresh_usage(paths)
    facts = [("cluster", jobs.read(paths.job).plan.cluster)]
    if submission is not None:
        facts.append(("submitted", submission.submitted_at))
        facts.append(("commit", submission.project.get("commit") or "none: the project is not under git, or has none"))
        image = events.image(paths) or submission.image_digest
        if image:
            facts.append(("image", image))
    facts.append(("attempts", str(report.attempts)))
    facts.append(("run directory", report.folder))
    return Described(paths, report, list(_figures(report)), facts, curves)


def print_or_json(paths: RunPaths, *, as_json: bool) -> None:
    """Print a run's report, or the report of each element of an array."""
    from trainjob.observe import arrays

    elements = arrays.elements(paths)
    if elements:
        _print_elements(paths, elements, as_json=as_json)
    elif as_json:
        show.as_json(made(paths).as_json())
    else:
        print_report(made(paths))


def _print_elements(paths: RunPaths, elements: list[RunPaths], *, as_json: bool) -> None:
    from trainjob.observe.arrays import in_words, own_settings
    from trainjob.observe.status import status

    states = {one.id: one.state for one in status(paths).elements}
    reports = [(made(element, states[element.id]), own_settings(element)) for element in elements]
    if as_json:
        rows = [{**report.as_json(), "own": settings} for report, settings in reports]
        show.as_json({"id": paths.id, "folder": str(paths.folder), "tasks": rows})
        return
    head = ("ELEMENT", "STATE", "UPDATES", "LOSS", "HELD-OUT LOSS", "HELD-OUT ACCURACY", "OVERRIDES")
    show.table(head, ((*_summary(report), in_words(settings)) for report, settings in reports))


def _summary(report: Report) -> tuple[str, ...]:
    accuracy = None if report.held_out_accuracy is None else f"{100 * report.held_out_accuracy:.2f} %"
    losses = (None if loss is None else f"{loss:.4f}" for loss in (report.loss, report.held_out_loss))
    return tuple(str(cell or "-") for cell in (report.id, report.state, report.updates, *losses, accuracy))


def made(paths: RunPaths, state: str | None = None, curves: Series | None = None) -> Report:
    """Return a run's report; its state is what `status` says, for a killed script left RUNNING in its folder.

    `state` is what it has said already; `curves` gets the lines of metrics, too.
    """
    from dataclasses import replace

    from trainjob.backends import mirror
    from trainjob.observe.report.report import report as from_the_folder
    from trainjob.observe.status import status

    try:
        mirror.refresh_output(paths)
    except UserError as error:
        typer.echo(f"warning: this is what was last known: {error}", err=True)
    return replace(from_the_folder(paths, curves), state=state or status(paths).state)


def print_report(report: Report) -> None:
    """Print a run's figures as a table."""
    typer.echo(f"\n{report.name} · {report.state or 'not started'} · {_instances(report)}")
    show.rows([*_figures(report), *_predictions(report), ("run directory", report.folder)])


def _predictions(report: Report) -> Iterator[tuple[str, str]]:
    from trainjob.observe.report.report import measure

    for one in report.predictions:
        expected, low, high = (
            measure(value, one.unit) for value in (one.predicted.median, one.predicted.low, one.predicted.high)
        )
        outside = "" if one.is_within else ", outside the interval"
        result = measure(one.result, one.unit)
        yield f"predicted {one.quantity}", f"{expected} ({low} to {high}); result {result}{outside}"


def _goodput(goodput: Goodput | None) -> Iterator[tuple[str, str]]:
    if goodput is None:
        return
    allocated = show.seconds(goodput.allocated_s)
    if goodput.share is None:
        yield "allocated", allocated
    else:
        yield "goodput", f"{100 * goodput.share:.1f} % of {allocated} allocated"
        yield "allocated time", " · ".join(f"{name} {show.seconds(seconds)}" for name, seconds in goodput.parts)
    if goodput.waits:
        yield "waited", " · ".join(f"{name} {show.seconds(seconds)}" for name, seconds in goodput.waits)


def _profiles(report: Report) -> Iterator[tuple[str, str]]:
    for one in report.profiles:
        yield f"profile of rank {one.rank}", f"updates {one.first} to {one.last} on {one.device}, {one.seconds:.3f} s"
        if one.communication_s is not None and one.exposed_s is not None:
            hidden = (
                f", {100 * one.exposed_s / one.communication_s:.0f} % of it not hidden" if one.communication_s else ""
            )
            yield (
                "  communication",
                f"{one.communication_s:.3f} s{hidden}: {100 * one.exposed_s / one.seconds:.1f} % of the time",
            )
        for operator in one.operators[:5]:
            yield "  operator", f"{operator.name}: {operator.seconds:.3f} s in {operator.calls:,} calls"


def _trouble(report: Report) -> Iterator[tuple[str, str]]:
    if report.cause is not None:
        yield "cause", str(report.cause)
    if report.damaged_lines:
        yield "metrics", f"{report.damaged_lines} damaged lines of metrics.jsonl are left out"
    if report.packages_differ is not None:
        yield "hosts", report.packages_differ


def _instances(report: Report) -> str:
    attempts = f", {report.attempts} attempts" if report.attempts > 1 else ""
    return f"{report.instances} instance{'s' if report.instances > 1 else ''}{attempts}"


def _figures(report: Report) -> Iterator[tuple[str, str]]:
    if report.updates is not None:
        yield "epochs", f"{report.epochs} ({report.updates} updates)"
    if report.loss is not None:
        yield "training loss", f"{report.loss:.4f}"
    if report.held_out_loss is not None:
        yield "held-out loss", f"{report.held_out_loss:.4f}"
    if report.held_out_accuracy is not None:
        yield "held-out accuracy", f"{100 * report.held_out_accuracy:.2f} % of {report.held_out_samples} samples"
    if report.samples_per_s is not None:
        yield "samples/s", f"{report.samples_per_s:,.0f}"
    if report.peak_memory_bytes is not None:
        yield "memory", f"{show.size(report.peak_memory_bytes)} at most, of rank 0"
    yield from _goodput(report.goodput)
    yield from _profiles(report)
    yield from _trouble(report)
    for phase, seconds in (report.seconds or {}).items():
        yield f"seconds in {phase}", f"{seconds:.2f}"
    if report.slowest_rank is not None:
        yield "slowest rank", str(report.slowest_rank)
