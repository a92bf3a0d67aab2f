"""trainjob prune: old runs removed, by choice."""

from __future__ import annotations

import shutil
from datetime import timedelta
from typing import Annotated

import typer

from trainjob.cli.command import AsJson, command, commands, fail_unless, finite
from trainjob.contract import states
from trainjob.planning.words import quantity
from trainjob.watch import show

app = commands()


@command(app, "trainjob prune --older-than-days 7 --state FAILED", "trainjob prune --yes")
def prune(
    older_than_days: Annotated[
        float,
        typer.Option(min=0, max=100_000, callback=finite, help="Only runs submitted longer ago."),
    ] = 30,
    state: Annotated[
        list[str] | None, typer.Option(help="Only runs that ended in this state. May be repeated.")
    ] = None,
    keep: Annotated[int, typer.Option(min=0, help="Number of newest ended runs to keep.")] = 0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove the runs instead of listing them.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove old runs that you choose; without --yes they are only listed."""
    from trainjob.lifecycle import prune as pruning

    age = timedelta(days=older_than_days)
    asked = frozenset(word.upper() for word in state or ()) or states.ENDED
    if not asked <= states.ENDED:
        ended = ", ".join(sorted(states.ENDED))
        raise typer.BadParameter(f"--state {', '.join(state or ())}: states of ended runs are {ended}")
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
            typer.echo(f"{one.status.id}  {one.status.state}  {one.status.submitted_at}  {show.size(one.size_bytes)}")
        for folder, size in left:
            typer.echo(f"{folder}  left by a command that was interrupted  {show.size(size)}")
        ending = "removed" if yes else "would be removed: add --yes"
        freed = show.size(sum(one.size_bytes for one in removed))
        summed = f"{quantity(len(removed), 'run')}, {freed} {ending}"
        nothing = f"no {' or '.join(sorted(asked)) if state else 'ended'} run is older than {older_than_days:g} days"
        nothing += f", beside the {keep} newest" if keep else ""
        typer.echo(summed if removed or left else f"{nothing} (--older-than-days)")
    for error in failures.values():
        typer.echo(f"trainjob: {error}", err=True)
    fail_unless(not failures)
