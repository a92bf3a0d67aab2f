"""trainjob report: what a run has done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli import complete, show
from trainjob.cli.app import new
from trainjob.contract.errors import UserError

if TYPE_CHECKING:
    from trainjob.contract.paths import RunPaths
    from trainjob.report.report import Report

app = new()

Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="Run id, a unique prefix of one, last, or a path.", autocompletion=complete.runs
    ),
]


@app.command()
def report(run: Run, as_json: show.AsJson = False) -> None:
    """Show what a run has done, from its folder alone."""
    from trainjob.runs import index

    print_or_json(index.find(run), as_json=as_json)


def print_or_json(paths: RunPaths, *, as_json: bool) -> None:
    """Print a run's report, or one of each task where it is an array."""
    from trainjob.runs import arrays

    tasks = arrays.tasks(paths)
    if tasks:
        _print_tasks(paths, tasks, as_json=as_json)
    elif as_json:
        show.as_json(made(paths).as_json())
    else:
        print_report(made(paths))


def _print_tasks(paths: RunPaths, tasks: list[RunPaths], *, as_json: bool) -> None:
    from trainjob.report.tasks import in_words, own
    from trainjob.runs.status import status

    states = {one.id: one.state for one in status(paths).tasks}
    found = [(made(task, states[task.id]), own(task)) for task in tasks]
    if as_json:
        reports = [{**report.as_json(), "own": settings} for report, settings in found]
        show.as_json({"id": paths.id, "folder": str(paths.folder), "tasks": reports})
        return
    head = ("TASK", "STATE", "UPDATES", "LOSS", "HELD-OUT LOSS", "HELD-OUT ACCURACY", "OF ITS OWN")
    show.table(head, ((*_summary(report), in_words(settings)) for report, settings in found))


def _summary(found: Report) -> tuple[str, ...]:
    accuracy = None if found.held_out_accuracy is None else f"{100 * found.held_out_accuracy:.2f} %"
    losses = (None if loss is None else f"{loss:.4f}" for loss in (found.loss, found.held_out_loss))
    return tuple(str(cell or "-") for cell in (found.id, found.state, found.updates, *losses, accuracy))


def made(paths: RunPaths, state: str | None = None) -> Report:
    """Return a run's report; its state is what `status` says, for a killed script left RUNNING in its folder.

    `state` is what it has said already.
    """
    from dataclasses import replace

    from trainjob.report.report import report as from_the_folder
    from trainjob.runs.status import status
    from trainjob.submit import mirror

    try:
        mirror.refresh_output(paths)
    except UserError as error:
        typer.echo(f"warning: this is what was last known: {error}", err=True)
    return replace(from_the_folder(paths), state=state or status(paths).state)


def print_report(found: Report) -> None:
    """Print a run's figures as a table."""
    typer.echo(f"\n{found.name} · {found.state or 'not started'} · {_instances(found)}")
    show.rows([*_figures(found), ("run directory", found.folder)])


def _instances(found: Report) -> str:
    attempts = f", {found.attempts} attempts" if found.attempts > 1 else ""
    return f"{found.instances} instance{'s' if found.instances > 1 else ''}{attempts}"


def _figures(found: Report) -> Iterator[tuple[str, str]]:
    if found.updates is not None:
        yield "epochs", f"{found.epochs} ({found.updates} updates)"
    if found.loss is not None:
        yield "training loss", f"{found.loss:.4f}"
    if found.held_out_loss is not None:
        yield "held-out loss", f"{found.held_out_loss:.4f}"
    if found.held_out_accuracy is not None:
        yield "held-out accuracy", f"{100 * found.held_out_accuracy:.2f} % of {found.held_out_samples} samples"
    if found.samples_per_s is not None:
        yield "samples/s", f"{found.samples_per_s:,.0f}"
    for phase, seconds in (found.seconds or {}).items():
        yield f"seconds in {phase}", f"{seconds:.2f}"
