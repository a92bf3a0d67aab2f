"""trainjob reserve: nodes for a while, in which runs begin at once."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from trainjob.cli import complete
from trainjob.cli.command import AsJson, OverBudget, agreed, command, commands, fail_unless, finite
from trainjob.contract import states
from trainjob.watch import show

app = commands()


@command(app, "trainjob reserve hpc --instances 8 --for 2h", "trainjob reserve hpc --hosts 2 --for 90m --hold")
def reserve(
    cluster: Annotated[
        str | None,
        typer.Argument(
            metavar="[CLUSTER]",
            help="Cluster file of kind slurm: a name or a path. Default: the one in use (trainjob cluster use).",
            autocompletion=complete.clusters,
        ),
    ] = None,
    instances: Annotated[
        int | None, typer.Option(min=1, help="Instances that one run may have. Default: 1, or what --hosts holds.")
    ] = None,
    hosts: Annotated[int | None, typer.Option(min=1, help="Nodes. Default: as few as hold the instances.")] = None,
    length: Annotated[
        str,
        typer.Option(
            "--for", "--time-limit", metavar="TIME", help="How long at most: 90m, 2h, 1d, or as Slurm writes it."
        ),
    ] = "1h",
    idle: Annotated[
        float,
        typer.Option(
            min=0.1, max=44_640, callback=finite, help="End it when no step has run in it for so many minutes."
        ),
    ] = 30.0,
    hold: Annotated[
        bool, typer.Option("--hold", help="Stay, and end it with this command, however that ends: Ctrl-C, kill.")
    ] = False,
    directive: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Any sbatch option by its long name.")
    ] = None,
    over_budget: OverBudget = False,
    as_json: AsJson = False,
) -> None:
    """Take nodes of a cluster for a while: submit --in last runs in them at once.

    It returns when it has them. Until then its end, even by a kill, takes the request back. `list`, `status` and
    `cancel` treat a reservation like a run.
    """
    from trainjob.cli.job_flags import pair
    from trainjob.contract.settings import rows
    from trainjob.observe.status import Snapshot, poll
    from trainjob.requests import reserve as reserving
    from trainjob.requests.submission import submit

    row = rows()["directives"]
    options = dict(pair(text, row) for text in directive or ())
    prepared = reserving.planned(cluster, length, idle, instances=instances, hosts=hosts, directives=options)
    if over_budget:
        agreed()
    name, said = prepared.named_cluster.name, set[str]()

    def state_of(now: Snapshot) -> str:
        if now.note and now.note not in said:
            said.add(now.note)
            typer.echo(f"{now.state}: {now.note}", err=True)
        return now.state

    with reserving.guarded(show.warning) as tell:
        paths = submit(prepared, again=True, check=False, over_budget=over_budget, before=tell)
        if not as_json:
            typer.echo(f"submitted reservation {paths.id}: {paths.folder}")
        now = poll(paths, lambda seen: state_of(seen) not in states.ACTIVE - {states.RUNNING})
        if now.state == states.RUNNING:
            if as_json:
                show.as_json(now.as_json())
            else:
                typer.echo(f"it has {now.scheduler.get('nodes') or 'its nodes'}, as job {now.scheduler['job_id']}")
                typer.echo(f"next: trainjob submit --cluster {name} --in last -- COMMAND · trainjob cancel {paths.id}")
            sys.stdout.flush()
            if hold:
                now = poll(paths, lambda seen: state_of(seen) not in states.ACTIVE)
        tell(None)
    if now.state != states.RUNNING:
        typer.echo(f"reservation {paths.id} is {now.state}", err=True)
    fail_unless(now.state in (states.RUNNING, states.COMPLETED))
