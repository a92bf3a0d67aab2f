"""trainjob resume: one more attempt."""

from __future__ import annotations

import click

from trainjob.cli.command import command, follow_option, json_option, run_argument
from trainjob.watch import show


@command("trainjob resume last --follow", "trainjob resume k3xq --instances 4")
@run_argument
@click.option("--instances", type=int, help="Continue with this number of instances and the same global batch.")
@click.option("--from-scratch", is_flag=True, help="Set all checkpoints aside and start over from the first update.")
@follow_option
@json_option
def resume(run: str, instances: int | None, from_scratch: bool, follow: bool, as_json: bool) -> None:
    """Continue a run that ended early, from its newest checkpoint."""
    from trainjob.cli import following
    from trainjob.requests import interface

    found = interface.run(run)
    paths = found.resume(instances=instances, from_scratch=from_scratch, warn=show.warning).paths
    following.started(paths, f"run {paths.id} continues: {paths.folder}", follow=follow, as_json=as_json)
