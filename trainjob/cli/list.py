"""trainjob list: the runs."""

from __future__ import annotations

from typing import Annotated

import typer

from trainjob.cli import show
from trainjob.cli.app import new

app = new()


@app.command("list")
def list_runs(
    state: Annotated[str | None, typer.Option("--state", help="Only runs in this state.")] = None,
    as_json: show.AsJson = False,
) -> None:
    """List the runs, newest last."""
    from trainjob.contract.states import ALL
    from trainjob.runs import index
    from trainjob.runs.status import statuses

    if state is not None and state.upper() not in ALL:
        raise typer.BadParameter(f"--state {state}: states are {', '.join(ALL)}")
    found = sorted(statuses(index.every_run()), key=lambda one: one.submitted_at or "")
    for note in dict.fromkeys(one.note for one in found if one.is_stale):
        typer.echo(f"warning: {note}", err=True)
    chosen = [one for one in found if state is None or one.state == state.upper()]
    if as_json:
        show.as_json([one.as_json() for one in chosen])
    elif not chosen:
        typer.echo("no runs: `trainjob submit --cluster local --instances 2 --follow` makes one")
    else:
        show.table(
            ("RUN", "STATE", "CLUSTER", "ATTEMPT", "UPDATE", "SUBMITTED"),
            (
                (
                    one.id,
                    one.state,
                    one.cluster or "-",
                    str(one.attempt),
                    str(one.update or "-"),
                    one.submitted_at or "-",
                )
                for one in chosen
            ),
        )
