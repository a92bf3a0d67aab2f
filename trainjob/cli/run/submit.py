"""trainjob submit: plan, render, check, write the run directory, hand it over."""

from __future__ import annotations

import click

from trainjob.cli.command import command, follow_option, json_option
from trainjob.cli.job_flags import secret_option, takes_a_job
from trainjob.requests.options import JobOptions
from trainjob.watch import show


@command(
    "trainjob submit --cluster local --instances 2 --follow",
    "trainjob submit --cluster hpc --instances 16 -- python train.py",
)
@takes_a_job()
@click.option("--dry-run", is_flag=True, help="Print the bytes of the job script and end.")
@click.option("--no-check", is_flag=True, help="Submit without checking first.")
@click.option("--again", is_flag=True, help="Allow the same job a second time within a minute.")
@click.option(
    "--after", multiple=True, metavar="RUN", help="Under Slurm: start once this run is COMPLETED. May be repeated."
)
@follow_option
@secret_option
@json_option
def submit(
    flags: JobOptions,
    dry_run: bool,
    no_check: bool,
    again: bool,
    after: tuple[str, ...],
    follow: bool,
    allow_secret_env: bool,
    as_json: bool,
) -> None:
    """Plan, render, check, write the run directory, and hand it over."""
    from trainjob.requests.interface import plan_of

    job = plan_of(flags)
    if dry_run:
        from trainjob.cli.plan.render import print_rendered

        print_rendered(job.render(), as_json=as_json)
        return
    from trainjob.cli import following
    from trainjob.observe import arrays
    from trainjob.records import submission as submissions

    run = job.submit(after=after, again=again, check=not no_check, allow_secret_env=allow_secret_env)
    for warning in job.warnings:
        show.warning(f"{warning.text}; {warning.cure}")
    selection = job.prepared.selection
    for name, reason in () if selection is None else selection.left_out:
        click.echo(f"left out of the run: {name} ({reason})", err=True)
    submission = submissions.read(run.paths)
    for line in str(((submission and submission.native) or {}).get(submissions.SAID, "")).splitlines():
        click.echo(f"the site says: {show.visible(line)}", err=True)
    first = next((element.id for element in arrays.elements(run.paths)), run.id)
    following.started(
        run.paths,
        f"submitted run {run.id}: {run.folder}",
        f"trainjob logs {first} --follow · trainjob status {run.id} · trainjob cancel {run.id}",
        follow=follow,
        as_json=as_json,
    )
