"""trainjob list: the runs."""

from __future__ import annotations

import click

from trainjob.cli.command import cluster_option, command, json_option
from trainjob.watch import show


@command("trainjob list", "trainjob list --state FAILED")
@click.option("--limit", "-n", type=click.IntRange(min=1), help="Only this many of the newest runs.")
@click.option("--state", help="Only runs in this state.")
@cluster_option("Only runs on this cluster.")
@click.option("--name", help="Only jobs of this name, which may contain * and ?.")
@click.option("--since", metavar="WHEN", help="Only runs submitted since: 12h, 2d, 2026-11-20.")
@json_option
def list_command(
    limit: int | None, state: str | None, cluster: str | None, name: str | None, since: str | None, as_json: bool
) -> None:
    """List the runs, newest last."""
    from datetime import UTC, datetime

    from trainjob.contract.states import ALL
    from trainjob.observe import index, notify
    from trainjob.observe.listing import Choice, listed, time_of

    if state is not None and state.upper() not in ALL:
        raise click.BadParameter(f"--state {state}: states are {', '.join(ALL)}")
    earliest = None if since is None else time_of(since, datetime.now(UTC))
    notify.start_if_needed()
    chosen = listed(Choice(state.upper() if state else None, cluster, name, earliest, limit))
    for note in dict.fromkeys(one.note for one in chosen if one.is_stale):
        show.warning(f"{note}")
    for error in index.foreign_runs():
        show.warning(f"not listed: {error.text}")
    if as_json:
        show.as_json([one.as_json() for one in chosen])
    elif not chosen:
        click.echo("no runs: `trainjob submit --cluster local --instances 2 --follow` starts one")
    else:
        body = []
        for one in chosen:
            damage = f"damaged: {one.damage[0]}" if one.damage else ""
            update = str(one.update or "-")
            row = (one.id, one.state, one.cluster or "-", str(one.attempt), update, one.submitted_at or "-", damage)
            body.append(row)
        show.table(("RUN", "STATE", "CLUSTER", "ATTEMPT", "UPDATE", "SUBMITTED", ""), body)
