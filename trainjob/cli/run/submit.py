"""trainjob submit: plan, render, check, write the run directory, hand it over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli.app import examples, new
from trainjob.cli.job_flags import AllowSecretEnv, takes_a_job
from trainjob.requests.options import JobOptions
from trainjob.watch import show

if TYPE_CHECKING:
    from trainjob.contract.paths import RunPaths

app = new()


@app.command(
    epilog=examples(
        "trainjob submit --cluster local --instances 2 --follow",
        "trainjob submit --cluster hpc --instances 16 -- python train.py",
    )
)
@takes_a_job
def submit(
    flags: JobOptions,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for the end of the run; Ctrl-C leaves it running.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the bytes of the job script and end.")] = False,
    after: Annotated[
        list[str] | None,
        typer.Option("--after", metavar="RUN", help="Under Slurm: start once this run is COMPLETED. May be repeated."),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Allow the same job a second time within a minute.")] = False,
    no_check: Annotated[bool, typer.Option("--no-check", help="Submit without checking first.")] = False,
    allow_secret_env: AllowSecretEnv = False,
    as_json: show.AsJson = False,
) -> None:
    """Plan, render, check, write the run directory, and hand it over."""
    if dry_run:
        _print_bytes(flags, as_json=as_json)
        return
    paths = _submitted(flags, after or [], again=again, check=not no_check, allow_secret_env=allow_secret_env)
    if not as_json:
        typer.echo(f"submitted run {paths.id}: {paths.folder}")
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
    from trainjob.observe import arrays

    return next((element.id for element in arrays.elements(paths)), paths.id)


def _print_bytes(flags: JobOptions, *, as_json: bool) -> None:
    from trainjob.cli.plan.render import print_rendered
    from trainjob.requests.interface import plan_of

    print_rendered(plan_of(flags).render(), as_json=as_json)


def _submitted(flags: JobOptions, after: list[str], *, again: bool, check: bool, allow_secret_env: bool) -> RunPaths:
    from trainjob.cli.plan.plan import warnings
    from trainjob.requests.interface import plan_of

    job = plan_of(flags)
    run = job.submit(after=after, again=again, check=check, allow_secret_env=allow_secret_env)
    warnings(job.warnings)
    selection = job.prepared.selection
    for name, reason in () if selection is None else selection.left_out:
        typer.echo(f"left out of the run: {name} ({reason})", err=True)
    return run.paths
