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

    found = made(index.find(run))
    if as_json:
        show.as_json(found.as_json())
    else:
        print_report(found)


def made(paths: RunPaths) -> Report:
    """Return a run's report; its state is what `status` says, for a killed script left RUNNING in its folder."""
    from dataclasses import replace

    from trainjob.report.report import report as from_the_folder
    from trainjob.runs.status import status
    from trainjob.submit import mirror

    try:
        mirror.refresh_output(paths)
    except UserError as error:
        typer.echo(f"warning: this is what was last known: {error}", err=True)
    return replace(from_the_folder(paths), state=status(paths).state)


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
