"""trainjob plan: the arithmetic and the picture."""

from __future__ import annotations

import typer

from trainjob.cli import show
from trainjob.cli.app import new
from trainjob.cli.job_flags import JobFlags, takes_a_job

app = new()


@app.command()
@takes_a_job
def plan(flags: JobFlags, as_json: show.AsJson = False) -> None:
    """Show the arithmetic and the picture: hosts, instances, replicas, devices, data, batch."""
    from trainjob.cli.prepared import prepare
    from trainjob.plan.picture import picture
    from trainjob.plan.record import as_record
    from trainjob.plan.rows import arithmetic

    planned = prepare(flags).request.plan
    if as_json:
        show.as_json(as_record(planned))
        return
    typer.echo(f"{planned.name} on {planned.cluster} ({planned.kind})\n")
    show.rows(arithmetic(planned))
    typer.echo()
    for line in picture(planned):
        typer.echo(line)
    warnings(planned.warnings)


def warnings(found: object) -> None:
    """Print a plan's warnings on the error stream, each with its cure."""
    from trainjob.plan.values import Warning as Caution

    for warning in found if isinstance(found, tuple) else ():
        assert isinstance(warning, Caution)  # noqa: S101 - for the type checker
        typer.echo(f"warning: {warning.text}; {warning.cure}", err=True)
