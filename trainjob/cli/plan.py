"""trainjob plan: the arithmetic and the picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from trainjob.cli import show
from trainjob.cli.app import new
from trainjob.cli.job_flags import JobFlags, takes_a_job

if TYPE_CHECKING:
    from trainjob.render.request import Request

app = new()
_MOST_TASKS_SHOWN = 20


@app.command()
@takes_a_job
def plan(flags: JobFlags, as_json: show.AsJson = False) -> None:
    """Show the arithmetic and the picture: hosts, instances, replicas, devices, data, batch."""
    from trainjob.cli.prepared import prepare
    from trainjob.plan.picture import picture
    from trainjob.plan.record import as_record
    from trainjob.plan.rows import arithmetic

    request = prepare(flags).request
    planned = request.plan
    if as_json:
        tasks = {number: as_record(task.plan) for number, task in request.tasks.items()} if request.swept else {}
        show.as_json({**as_record(planned), **({"tasks": tasks} if tasks else {})})
        return
    typer.echo(f"{planned.name} on {planned.cluster} ({planned.kind})\n")
    show.rows(arithmetic(planned))
    _tasks(request)
    typer.echo()
    for line in picture(planned):
        typer.echo(line)
    warnings(planned.warnings)


def _tasks(request: Request) -> None:
    """Print what each task of an array has of its own."""
    from trainjob.report.tasks import in_words

    if not request.swept:
        return
    typer.echo("\neach task as above, and:")
    shown = list(request.tasks.items())[:_MOST_TASKS_SHOWN]
    show.rows((f"task {number}", in_words(_own(request, task))) for number, task in shown)
    if len(request.tasks) > len(shown):
        typer.echo(f"  … and {len(request.tasks) - len(shown)} more: --json shows all")


def _own(request: Request, task: Request) -> dict[str, object]:
    from trainjob.report.tasks import differing

    return differing(*(one.job.model_dump(mode="json", exclude_unset=True) for one in (task, request)))


def warnings(found: object) -> None:
    """Print a plan's warnings on the error stream, each with its cure."""
    from trainjob.plan.values import Warning as Caution

    for warning in found if isinstance(found, tuple) else ():
        assert isinstance(warning, Caution)  # noqa: S101 - for the type checker
        typer.echo(f"warning: {warning.text}; {warning.cure}", err=True)
