"""trainjob devices: what gc-monitor, nvidia-smi or rocm-smi says, as one table."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from trainjob.cli import complete
from trainjob.cli.app import examples, new
from trainjob.watch import show

app = new()
_EVERY_S = 5.0


@app.command(epilog=examples("trainjob devices --cluster pod64", "trainjob devices --cluster hpc --json"))
def devices(
    cluster: Annotated[
        str, typer.Option("--cluster", "-c", help="Cluster file: a name or a path.", autocompletion=complete.clusters)
    ] = "local",
    watch: Annotated[bool, typer.Option("--watch", help="Ask again every few seconds, until Ctrl-C.")] = False,
    as_json: show.AsJson = False,
) -> None:
    """Show a cluster's devices and who uses them; under Slurm, which job holds each GPU of the partition."""
    from trainjob.kinds.lookup import find

    found = find(cluster)
    while True:
        _show(found.name, found.cluster, as_json=as_json)
        if not watch:
            return
        time.sleep(_EVERY_S)
        typer.echo()


def _show(name: str, cluster: object, *, as_json: bool) -> None:
    from typing import cast

    from trainjob.cluster.base import Cluster
    from trainjob.machines.devices.asking import devices as ask

    listed = ask(name, cast(Cluster, cluster))
    if as_json:
        show.as_json([device.as_json() for device in listed])
        return
    head = ("DEVICE", "WHERE", "DETAIL", "USER", "PROCESS")
    show.table(head, ([one.device, one.where, one.detail, one.user, one.process] for one in listed))
    free = sum(not one.process for one in listed)
    typer.echo(f"{free} of {len(listed)} free")
