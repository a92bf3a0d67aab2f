"""trainjob devices: what gc-monitor, nvidia-smi or rocm-smi says, as one table."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from trainjob.cli.command import AsJson, cluster_option, command, commands
from trainjob.watch import show

app = commands()


@command(app, "trainjob devices --cluster pod64", "trainjob devices --cluster hpc --json")
def devices(
    cluster: Annotated[str | None, cluster_option()] = None,
    as_json: AsJson = False,
) -> None:
    """Show a cluster's devices and who uses them; under Slurm, which job holds each GPU of the partition."""
    from trainjob.kinds.choice import choose
    from trainjob.kinds.lookup import find
    from trainjob.machines.devices import devices as listing

    found = find(choose(cluster).value)
    listed = listing(found.name, found.cluster)
    if as_json:
        show.as_json([asdict(device) for device in listed])
    else:
        head = ("DEVICE", "WHERE", "DETAIL", "USER", "PROCESS")
        show.table(head, ([one.device, one.where, one.detail, one.user, one.process] for one in listed))
        typer.echo(f"{sum(one.is_free for one in listed)} of {len(listed)} free")
