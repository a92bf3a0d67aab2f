"""trainjob list: the runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli.app import examples, new
from trainjob.watch import show

if TYPE_CHECKING:
    from trainjob.observe.status import Snapshot

app = new()


_Since = Annotated[
    str | None, typer.Option("--since", metavar="WHEN", help="Only runs submitted since: 12h, 2d, 2026-11-20.")
]


_State = Annotated[str | None, typer.Option("--state", help="Only runs in this state.")]
_Name = Annotated[str | None, typer.Option("--name", help="Only jobs of this name, which may contain * and ?.")]
_Limit = Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Only this many of the newest runs.")]
_Cluster = Annotated[str | None, typer.Option("--cluster", "-c", help="Only runs on this cluster.")]


@app.command("list", epilog=examples("trainjob list", "trainjob list --state FAILED"))
def list_runs(
    state: _State = None,
    cluster: _Cluster = None,
    name: _Name = None,
    since: _Since = None,
    limit: _Limit = None,
    as_json: show.AsJson = False,
) -> None:
    """List the runs, newest last."""
    from datetime import UTC, datetime

    from trainjob.contract.states import ALL
    from trainjob.observe import index, notify
    from trainjob.observe.listing import Choice, listed, time_of

    if state is not None and state.upper() not in ALL:
        raise typer.BadParameter(f"--state {state}: states are {', '.join(ALL)}")
    earliest = None if since is None else time_of(since, datetime.now(UTC))
    notify.start_if_needed()
    chosen = listed(Choice(state.upper() if state else None, cluster, name, earliest, limit))
    for note in dict.fromkeys(one.note for one in chosen if one.is_stale):
        typer.echo(f"warning: {note}", err=True)
    for error in index.foreign_runs():
        typer.echo(f"warning: not listed: {error.text}", err=True)
    if as_json:
        show.as_json([one.as_json() for one in chosen])
    elif not chosen:
        typer.echo("no runs: `trainjob submit --cluster local --instances 2 --follow` starts one")
    else:
        head = ("RUN", "STATE", "CLUSTER", "ATTEMPT", "UPDATE", "SUBMITTED", "")
        show.table(head, (_row(one) for one in chosen))


def _row(one: Snapshot) -> tuple[str, ...]:
    damage = f"damaged: {one.damage[0]}" if one.damage else ""
    return (
        one.id,
        one.state,
        one.cluster or "-",
        f"{one.attempt}",
        f"{one.update or '-'}",
        one.submitted_at or "-",
        damage,
    )
