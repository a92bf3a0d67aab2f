"""trainjob prune: old runs removed, by choice."""

from __future__ import annotations

import shutil
from datetime import timedelta

import click

from trainjob.cli.command import FiniteRange, command, fail_unless, json_option
from trainjob.contract import states
from trainjob.planning.words import quantity
from trainjob.watch import show


@command("trainjob prune --older-than-days 7 --state FAILED", "trainjob prune --yes")
@click.option(
    "--older-than-days", type=FiniteRange(min=0, max=100_000), default=30, help="Only runs submitted longer ago."
)
@click.option("--state", multiple=True, help="Only runs that ended in this state. May be repeated.")
@click.option("--keep", type=click.IntRange(min=0), default=0, help="Number of newest ended runs to keep.")
@click.option("--yes", "-y", is_flag=True, help="Remove the runs instead of listing them.")
@json_option
def prune(older_than_days: float, state: tuple[str, ...], keep: int, yes: bool, as_json: bool) -> None:
    """Remove old runs that you choose; without --yes they are only listed."""
    from trainjob.lifecycle import prune as pruning

    age = timedelta(days=older_than_days)
    asked = frozenset(word.upper() for word in state) or states.ENDED
    if not asked <= states.ENDED:
        ended = ", ".join(sorted(states.ENDED))
        raise click.BadParameter(f"--state {', '.join(state)}: states of ended runs are {ended}")
    chosen = pruning.candidates(older_than=age, in_states=asked, keep=keep, warn=show.warning)
    left = [(folder, pruning.size(folder)) for folder in pruning.leftovers(older_than=age)]
    failures = pruning.remove(chosen) if yes else {}
    if yes:
        for folder, _ in left:
            shutil.rmtree(folder, ignore_errors=True)
        pruning.forget_missing()
    removed = [one for one in chosen if one.status.id not in failures]
    if as_json:
        rows = [(one.status.id, one.size_bytes, yes and one in removed) for one in chosen]
        rows += [(folder.name, size, yes) for folder, size in left]
        show.as_json([{"id": name, "bytes": size, "removed": is_removed} for name, size, is_removed in rows])
    else:
        for one in removed:
            click.echo(f"{one.status.id}  {one.status.state}  {one.status.submitted_at}  {show.size(one.size_bytes)}")
        for folder, size in left:
            click.echo(f"{folder}  left by a command that was interrupted  {show.size(size)}")
        said = "removed" if yes else "would be removed: add --yes"
        freed = show.size(sum(one.size_bytes for one in removed))
        summed = f"{quantity(len(removed), 'run')}, {freed} {said}"
        click.echo(summed if removed or left else "there is no such run, so nothing is removed")
    for error in failures.values():
        click.echo(f"trainjob: {error}", err=True)
    fail_unless(not failures)
