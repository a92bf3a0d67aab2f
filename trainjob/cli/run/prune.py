"""trainjob prune: old runs removed, by choice."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli.app import examples, new
from trainjob.contract import exits, states
from trainjob.watch import show

if TYPE_CHECKING:
    from trainjob.lifecycle.prune import Candidate

app = new()


@app.command(epilog=examples("trainjob prune --older-than-days 7 --state FAILED", "trainjob prune --yes"))
def prune(
    older_than_days: Annotated[
        float, typer.Option("--older-than-days", min=0, help="Only runs submitted longer ago.")
    ] = 30,
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only runs that ended in this state. May be repeated.")
    ] = None,
    keep: Annotated[int, typer.Option("--keep", min=0, help="Number of newest ended runs to keep.")] = 0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove the runs instead of listing them.")] = False,
    as_json: show.AsJson = False,
) -> None:
    """Remove old runs that you choose; without --yes they are only listed."""
    from trainjob.lifecycle import prune as pruning

    age = timedelta(days=older_than_days)
    chosen = pruning.candidates(older_than=age, in_states=_states(state), keep=keep, warn=_warn)
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
        _print(removed, left, yes=yes)
    for error in failures.values():
        typer.echo(f"trainjob: {error}", err=True)
    if failures:
        raise typer.Exit(exits.USER_OR_CLUSTER_CAN_FIX)


def _warn(line: str) -> None:
    typer.echo(f"warning: {line}", err=True)


def _print(chosen: Sequence[Candidate], left: Sequence[tuple[Path, int]], *, yes: bool) -> None:
    for one in chosen:
        typer.echo(f"{one.status.id}  {one.status.state}  {one.status.submitted_at}  {show.size(one.size_bytes)}")
    for folder, size in left:
        typer.echo(f"{folder}  left by a command that was interrupted  {show.size(size)}")
    said = "removed" if yes else "would be removed: add --yes"
    typer.echo(f"{len(chosen)} runs, {show.size(sum(one.size_bytes for one in chosen))} {said}")


def _states(words: list[str] | None) -> frozenset[str]:
    if not words:
        return states.ENDED
    chosen = frozenset(word.upper() for word in words)
    if not chosen <= states.ENDED:
        raise typer.BadParameter(
            f"--state {', '.join(words)}: states of ended runs are {', '.join(sorted(states.ENDED))}"
        )
    return chosen
