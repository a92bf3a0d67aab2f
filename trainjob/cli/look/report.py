"""trainjob report: what a run has done."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli.command import AsJson, RunNames, command, commands
from trainjob.cli.look.status import print_failure
from trainjob.contract.errors import UserError
from trainjob.planning.words import quantity
from trainjob.watch import show

if TYPE_CHECKING:
    from trainjob.contract.paths import RunPaths
    from trainjob.observe.report.report import Report
    from trainjob.observe.report.series import Series
    from trainjob.observe.status import Snapshot

app = commands()


@command(app, "trainjob report ./copied-run --json", "trainjob report 3nru 7hea --html compared.html")
def report(
    runs: RunNames,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write one self-contained page with curves: of a run, or of several compared.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the results of a run, from its folder alone."""
    from trainjob.observe import index
    from trainjob.observe.status import status

    found = [index.find(run) for run in runs]
    if html is not None:
        _write_page(found, html)
    elif len(found) > 1:
        raise UserError("several runs can only be compared on a page", "give --html FILE")
    else:
        print_or_json(status(found[0]), as_json=as_json)


def _write_page(runs: list[RunPaths], target: Path) -> None:
    from trainjob.backends import mirror
    from trainjob.observe.report import page
    from trainjob.observe.report.series import Series
    from trainjob.observe.status import statuses
    from trainjob.records.files import write_atomically

    if not target.parent.is_dir():
        raise UserError(f"--html {target}: there is no folder {target.parent}", f"mkdir -p {target.parent}")
    # The elements of an array are runs to compare.
    described = []
    for now in (part for run in statuses(runs) for part in run.parts):
        curves = Series()
        report = made(now, curves)
        with suppress(UserError):  # a warning has named the machine that can't be reached
            mirror.refresh_usage(now.paths, now.submission)
        described.append(page.described(now.paths, report, curves, now.submission))
    text = page.of_run(described[0]) if len(described) == 1 else page.of_runs(described)
    write_atomically(target, text)
    typer.echo(f"wrote {target}: {len(text.encode()) / 1e6:.1f} MB, one file that needs no network")


def print_or_json(now: Snapshot, *, as_json: bool) -> None:
    """Print a run's report, or the report of each element of an array."""
    from trainjob.observe.arrays import in_words, own_settings

    if not now.elements:
        report = made(now)
        if as_json:
            show.as_json(report.as_json())
        else:
            print_report(report)
            print_failure(now, is_output_shown=True)
        return
    reports = [(made(element), own_settings(element.paths)) for element in now.elements]
    if as_json:
        rows = [{**report.as_json(), "own": settings} for report, settings in reports]
        show.as_json({"id": now.id, "folder": now.folder, "tasks": rows})
        return
    body = []
    for report, settings in reports:
        accuracy = None if report.held_out_accuracy is None else f"{100 * report.held_out_accuracy:.2f} %"
        losses = (None if loss is None else f"{loss:.4f}" for loss in (report.loss, report.held_out_loss))
        figures = (report.id, report.state, report.updates, *losses, accuracy)
        body.append((*(str(cell or "-") for cell in figures), in_words(settings)))
    show.table(("ELEMENT", "STATE", "UPDATES", "LOSS", "HELD-OUT LOSS", "HELD-OUT ACCURACY", "OVERRIDES"), body)


def made(now: Snapshot, curves: Series | None = None) -> Report:
    """Return a run's report, with its state by `now`: a script that was killed has left RUNNING in its folder.

    `curves` gets the lines of metrics, too.
    """
    from dataclasses import replace

    from trainjob.backends import mirror
    from trainjob.observe.report.report import report as from_the_folder

    try:
        mirror.refresh_output(now.paths, now.submission)
    except UserError as error:
        show.warning(f"this is what was last known: {error}")
    return replace(from_the_folder(now.paths, now.submission, curves), state=now.state)


def print_report(report: Report) -> None:
    """Print a run's figures as a table."""
    from trainjob.observe.report import rows

    attempts = f", {report.attempts} attempts" if report.attempts > 1 else ""
    instances = quantity(report.instances, "instance")
    typer.echo(f"\n{report.name} · {show.state(report.state or 'not started')} · {instances}{attempts}")
    show.rows([*rows.figures(report), *rows.endings(report), ("run directory", report.folder)])
