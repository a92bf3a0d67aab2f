"""trainjob devices: what gc-monitor, nvidia-smi or rocm-smi says, as one table."""

from __future__ import annotations

from dataclasses import asdict

import click

from trainjob.cli.command import cluster_option, command, json_option
from trainjob.contract import clock
from trainjob.watch import show

_EVERY_S = 5.0


@command("trainjob devices --cluster pod64", "trainjob devices --cluster hpc --json")
@cluster_option(default="local")
@click.option("--watch", is_flag=True, help="Ask again every few seconds, until Ctrl-C.")
@json_option
def devices(cluster: str, watch: bool, as_json: bool) -> None:
    """Show a cluster's devices and who uses them; under Slurm, which job holds each GPU of the partition."""
    from trainjob.kinds.lookup import find
    from trainjob.machines.devices import devices as listing

    found = find(cluster)
    while True:
        listed = listing(found.name, found.cluster)
        if as_json:
            show.as_json([asdict(device) for device in listed])
        else:
            head = ("DEVICE", "WHERE", "DETAIL", "USER", "PROCESS")
            show.table(head, ([one.device, one.where, one.detail, one.user, one.process] for one in listed))
            click.echo(f"{sum(not one.process for one in listed)} of {len(listed)} free")
        if not watch:
            return
        clock.sleep(_EVERY_S)
        click.echo()
