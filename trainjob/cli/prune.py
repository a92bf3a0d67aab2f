"""trainjob prune: old runs removed, by choice."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from trainjob.cli import show
from trainjob.cli.app import new
from trainjob.contract import states

app = new()


@app.command()
def prune(
    older_than_days: Annotated[
        float, typer.Option("--older-than-days", min=0, help="Only runs submitted before.")
    ] = 30,
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only runs that ended so; may be repeated.")
    ] = None,
    keep: Annotated[int, typer.Option("--keep", min=0, help="Newest ended runs that stay.")] = 0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove them; without it they are only listed.")] = False,
    as_json: show.AsJson = False,
) -> None:
    """Remove old runs, by choice: without --yes they are only listed."""
    from trainjob.runs import prune as pruning

    chosen = pruning.candidates(older_than=timedelta(days=older_than_days), in_states=_states(state), keep=keep)
    if yes:
        pruning.remove(chosen)
        pruning.forget_missing()
    if as_json:
        show.as_json([{"id": one.status.id, "bytes": one.size_bytes, "removed": yes} for one in chosen])
        return
    for one in chosen:
        typer.echo(f"{one.status.id}  {one.status.state}  {one.status.submitted_at}  {show.size(one.size_bytes)}")
    said = "removed" if yes else "would be removed: add --yes"
    typer.echo(f"{len(chosen)} runs, {show.size(sum(one.size_bytes for one in chosen))} {said}")


def _states(asked: list[str] | None) -> frozenset[str]:
    if not asked:
        return states.ENDED
    chosen = frozenset(word.upper() for word in asked)
    if not chosen <= states.ENDED:
        raise typer.BadParameter(
            f"--state {', '.join(asked)}: states of ended runs are {', '.join(sorted(states.ENDED))}"
        )
    return chosen
