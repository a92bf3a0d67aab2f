"""trainjob cancel: ends one run."""

from __future__ import annotations

import click

from trainjob.cli.command import FiniteRange, command, fail_unless, json_option, run_argument
from trainjob.contract import states
from trainjob.watch import show


@command("trainjob cancel last", "trainjob cancel k3xq --stop")
@run_argument
@click.option("--stop", is_flag=True, help="Only ask for a checkpoint and a stop at the next block.")
@click.option("--grace-s", type=FiniteRange(min=0), default=30.0, help="Seconds the ranks get to checkpoint.")
@json_option
def cancel(run: str, stop: bool, grace_s: float, as_json: bool) -> None:
    """End every process of a run, and no other."""
    from trainjob.lifecycle import cancel as cancelling
    from trainjob.observe import index

    paths = index.find(run)
    after = cancelling.stop(paths) if stop else cancelling.cancel(paths, grace_s=grace_s)
    is_active = after.state in states.ACTIVE
    if as_json:
        show.as_json(after.as_json())
    elif stop and is_active:
        click.echo(f"run {paths.id} was asked to checkpoint and stop at its next block")
    else:
        click.echo(f"run {paths.id} is {after.state}")
    fail_unless(stop or not is_active)
