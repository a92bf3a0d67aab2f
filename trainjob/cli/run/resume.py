"""trainjob resume: one more attempt."""

from __future__ import annotations

from typing import Annotated

import typer

from trainjob.cli.command import AsJson, Follow, OverBudget, RunName, agreed, command, commands
from trainjob.watch import show

app = commands()


@command(app, "trainjob resume last --follow", "trainjob resume k3xq --instances 4")
def resume(
    run: RunName,
    instances: Annotated[
        int | None,
        typer.Option(help="Continue with this number of instances and the same global batch."),
    ] = None,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Set all checkpoints aside and start over from the first update.")
    ] = False,
    completed: Annotated[
        bool,
        typer.Option("--completed", help="Continue even a run that is called COMPLETED, because it had ended early."),
    ] = False,
    inside: Annotated[
        str | None,
        typer.Option(
            "--in", metavar="JOBID", help="Of a run inside an allocation: continue in this job. Default: the same job."
        ),
    ] = None,
    over_budget: OverBudget = False,
    follow: Follow = False,
    as_json: AsJson = False,
) -> None:
    """Continue a run that ended early, from its newest checkpoint."""
    from trainjob.cli import following
    from trainjob.observe import index
    from trainjob.requests import submission

    paths = index.find(run)
    if over_budget:
        agreed()
    submission.resume(
        paths,
        instances=instances,
        from_scratch=from_scratch,
        completed=completed,
        inside=inside,
        over_budget=over_budget,
        warn=show.warning,
    )
    following.started(paths, f"run {paths.id} continues: {paths.folder}", follow=follow, as_json=as_json)
