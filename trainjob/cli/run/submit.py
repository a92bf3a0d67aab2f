"""trainjob submit: plan, render, check, write the run directory, hand it over."""

from __future__ import annotations

from typing import Annotated

import typer

from trainjob.cli.command import AsJson, Follow, OverBudget, agreed, command, commands
from trainjob.cli.job_flags import AllowSecretEnv, in_allocation, propose_site, say_inside, takes_a_job
from trainjob.cli.run.started import started
from trainjob.requests.options import JobOptions
from trainjob.watch import show

app = commands()


@command(
    app,
    "trainjob submit --cluster local --instances 2 --follow",
    "trainjob submit --cluster hpc --instances 16 -- python train.py",
)
@takes_a_job(also=[in_allocation])
def submit(
    flags: JobOptions,
    inside: str | None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the bytes of the job script and end.")] = False,
    no_check: Annotated[bool, typer.Option("--no-check", help="Submit without checking first.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Allow the same job a second time within a minute.")] = False,
    after: Annotated[
        list[str] | None,
        typer.Option(metavar="RUN", help="Under Slurm: start once this run is COMPLETED. May be repeated."),
    ] = None,
    over_budget: OverBudget = False,
    follow: Follow = False,
    allow_secret_env: AllowSecretEnv = False,
    as_json: AsJson = False,
) -> None:
    """Plan, render, check, write the run directory, and hand it over."""
    from trainjob.requests.interface import plan_of

    job = plan_of(flags._replace(inside=inside))
    say_inside(job.prepared)
    if dry_run:
        from trainjob.cli.plan.render import print_rendered

        print_rendered(job.render(), as_json=as_json)
        return
    propose_site(job.prepared)
    from trainjob.requests.submission import submit as submit_prepared

    if over_budget:
        agreed()
    paths = submit_prepared(
        job.prepared,
        after=after or (),
        again=again,
        check=not no_check,
        allow_secret_env=allow_secret_env,
        over_budget=over_budget,
    )
    # Once it has begun: what is loaded earlier delays it.
    from trainjob.records import submission as submissions
    from trainjob.requests import proofs

    for warning in job.warnings:
        show.warning(f"{warning.text}; {warning.cure}")
    if (proof := proofs.known(job.prepared)) is not None:
        typer.echo(f"note: {show.visible(str(proof))}", err=True)
    selection = job.prepared.selection
    for name, reason in () if selection is None else selection.left_out:
        typer.echo(f"left out of the run: {name} ({reason})", err=True)
    submission = submissions.read(paths)  # anew: the handing over has added what sbatch said
    for line in str(((submission and submission.native) or {}).get(submissions.SBATCH_MESSAGES, "")).splitlines():
        typer.echo(f"the site says: {show.visible(line)}", err=True)
    first = next((element.id for element in paths.elements()), paths.id)
    started(
        paths,
        f"submitted run {paths.id}: {paths.folder}",
        f"trainjob logs {first} --follow · trainjob status {paths.id} · trainjob cancel {paths.id}",
        follow=follow,
        as_json=as_json,
    )
