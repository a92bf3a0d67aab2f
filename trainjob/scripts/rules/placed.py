"""Faults that only a cluster file shows: what the job asks for, and this cluster does not have."""

from __future__ import annotations

from collections.abc import Iterator

from trainjob.cluster import slurm_text
from trainjob.contract.errors import UserError
from trainjob.scripts.finding import Finding
from trainjob.scripts.script import Script


def beyond_cluster(script: Script) -> Iterator[Finding]:
    """Find figures of the request that exceed the cluster's."""
    header, request, site = script.header, script.request, script.site
    figures = (
        (("nodes",), request.nodes, site.max_nodes, "nodes a job"),
        (("gpus-per-node", "gres", "gpus"), request.gpus_per_node, site.accelerators or None, "GPUs a node"),
        (("cpus-per-task",), (request.cpus_per_task or 0) * (request.tasks_per_node or 1), site.cpus, "CPUs a node"),
    )
    for names, asked, most, what in figures:
        if asked is not None and most is not None and asked > most:
            yield Finding("beyond-cluster", header.line(*names), f"{asked} {what}, and the cluster has {most}")
    for name in site.required:
        if header.directives and header.value(name) is None:
            yield Finding("beyond-cluster", header.line(), f"this cluster requires --{name}")
    try:
        asked_s = slurm_text.seconds(header.value("time") or "0")
    except (UserError, ValueError):
        return
    if site.max_time_s is not None and asked_s is not None and asked_s > site.max_time_s:
        yield Finding(
            "beyond-cluster",
            header.line("time"),
            f"--time={header.value('time')}, and the cluster allows {site.max_time_s // 60} minutes",
        )
