"""trainjob submit: plan, render, check, write the run directory, hand it over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli import show
from trainjob.cli.app import new
from trainjob.cli.job_flags import JobFlags, takes_a_job

if TYPE_CHECKING:
    from trainjob.cli.prepared import Prepared
    from trainjob.contract.paths import RunPaths
    from trainjob.runs.waiting import Waiting

app = new()


@app.command()
@takes_a_job
def submit(
    flags: JobFlags,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Stay until the run ends; Ctrl-C lets go of it.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the very bytes of the job script and end.")] = False,
    after: Annotated[
        list[str] | None,
        typer.Option("--after", metavar="RUN", help="Start once this run is COMPLETED, under Slurm; may be repeated."),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Submit a job a second time within a minute.")] = False,
    as_json: show.AsJson = False,
) -> None:
    """Plan, render, check, write the run directory, and hand it over."""
    if dry_run:
        _print_bytes(flags, as_json=as_json)
        return
    paths = _submitted(flags, after or [], again=again)
    if not as_json:
        typer.echo(f"run {paths.id} is submitted: {paths.folder}")
    if follow:
        from trainjob.cli import following

        raise typer.Exit(following.to_the_end(paths, as_json=as_json))
    if as_json:
        show.as_json({"id": paths.id, "folder": str(paths.folder)})
    else:
        typer.echo(
            f"next: trainjob logs {_first(paths)} --follow · trainjob status {paths.id} · trainjob cancel {paths.id}"
        )


def _first(paths: RunPaths) -> str:
    from trainjob.runs import arrays

    return next((task.id for task in arrays.tasks(paths)), paths.id)


def _print_bytes(flags: JobFlags, *, as_json: bool) -> None:
    from trainjob.cli.prepared import prepare
    from trainjob.cli.render import print_rendered

    print_rendered(prepare(flags).render(), as_json=as_json)


def _submitted(flags: JobFlags, after: list[str], *, again: bool) -> RunPaths:
    import os

    from trainjob.cli.check import refuse_problems
    from trainjob.cli.plan import warnings
    from trainjob.cli.prepared import prepare, selected
    from trainjob.cluster.site import refuse_missing_facts
    from trainjob.runs import start
    from trainjob.submit.base import backend_name

    start.refuse_redirects(os.environ)
    prepared = prepare(flags)
    rendered = prepared.render()
    refuse_missing_facts(prepared.found.name, prepared.found.cluster)
    chosen = selected(prepared, untracked=flags.untracked)
    refuse_problems(prepared, chosen)
    warnings(prepared.request.plan.warnings)
    handover = start.Handover(
        rendered=rendered,
        name=prepared.request.plan.name,
        cluster=prepared.found.name,
        backend=backend_name(prepared.found.cluster),
        runs_dir=prepared.runs_dir,
        project=prepared.project,
        selection=chosen,
        remote=prepared.remote(),
        after=_waiting(prepared, after) if after else None,
    )
    for name, reason in () if chosen is None else chosen.left_out:
        typer.echo(f"left out of the run: {name} ({reason})", err=True)
    return start.submit(handover, again=again)


def _waiting(prepared: Prepared, asked: list[str]) -> Waiting:
    from trainjob.contract.errors import UserError
    from trainjob.runs import index, waiting

    found = prepared.found
    if found.cluster.kind != "slurm":
        raise UserError(
            f"--after is for Slurm, which keeps what waits, and cluster {found.name} is of kind {found.cluster.kind}: "
            "submit this run when the other has ended"
        )
    place = (found.cluster.ssh.host, found.cluster.ssh.user) if found.cluster.ssh else (None, None)
    return waiting.after([index.find(one) for one in asked], found.name, place)
