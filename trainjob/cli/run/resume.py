"""trainjob resume: one more attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli.command import AsJson, Follow, OverBudget, RunName, agreed, cluster_option, command, commands
from trainjob.cli.run.started import started
from trainjob.watch import show

if TYPE_CHECKING:
    from trainjob.contract.paths import RunPaths

app = commands()

_TELL_EVERY_S = 10.0


@command(app, "trainjob resume last --follow", "trainjob resume k3xq --cluster hpc")
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
    cluster: Annotated[
        str | None, cluster_option("Continue on this cluster, as a new run: a copy of the run directory goes there.")
    ] = None,
    over_budget: OverBudget = False,
    follow: Follow = False,
    as_json: AsJson = False,
) -> None:
    """Continue a run that ended early, from its newest checkpoint."""
    from trainjob.observe import index
    from trainjob.requests import elsewhere, resumption

    paths = index.find(run)
    if over_budget:
        agreed()
    if cluster is not None:
        if from_scratch or inside is not None:
            raise typer.BadParameter("--cluster excludes --from-scratch and --in: submit a new run there")
        with show.every(_TELL_EVERY_S, lambda: show.progress("  … the run directory is copied and compared")):
            moved = elsewhere.resume(
                paths,
                cluster,
                instances=instances,
                completed=completed,
                over_budget=over_budget,
                warn=show.warning,
            )
        summary = f"run {paths.id} continues as run {moved.id}: {moved.folder}"
        if not as_json:
            summary += f"\n{_difference(paths, moved)}"
        started(moved, summary, follow=follow, as_json=as_json)
        return
    resumption.resume(
        paths,
        instances=instances,
        from_scratch=from_scratch,
        completed=completed,
        inside=inside,
        over_budget=over_budget,
        warn=show.warning,
    )
    started(paths, f"run {paths.id} continues: {paths.folder}", follow=follow, as_json=as_json)


def _difference(before: RunPaths, after: RunPaths) -> str:
    from trainjob.planning.rows import differing
    from trainjob.records import job as jobs

    plans = [jobs.read(paths.job).plan for paths in (before, after)]
    rows = differing(*plans)
    if not rows:
        return f"its plan is the same on {plans[1].cluster} as on {plans[0].cluster}"
    head = f"its plan on {plans[1].cluster}, and what it was on {plans[0].cluster}:"
    return "\n".join([head, *(f"  {name}: {is_now or 'none'} (was {was or 'none'})" for name, was, is_now in rows)])
