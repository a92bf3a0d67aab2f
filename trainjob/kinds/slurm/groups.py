"""A job on several groups of nodes, split into one request for each group."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from trainjob.cluster import hostlist
from trainjob.contract.errors import UserError
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.render.record import environment
from trainjob.render.request import Request


def of_each_group(request: Request, cluster: SlurmCluster) -> list[tuple[Request, SlurmCluster]]:
    """Return the request and cluster of each group; the unchanged pair if the cluster has no groups.

    Raises UserError for an environment that sbatch would change.
    """
    if not cluster.has_groups:
        return [(request, cluster)]
    for name, value in environment(request).items():
        if "\n\n" in value:
            raise UserError(
                f"env {name} holds an empty line, and nodes is a list of groups: sbatch would drop that line",
                "take the empty line out, or take a cluster file with one group",
            )
    return list(_parts(request, cluster))


def _parts(request: Request, cluster: SlurmCluster) -> Iterator[tuple[Request, SlurmCluster]]:
    topology, names = request.plan.topology, hostlist.expand(request.plan.topology.hosts)
    for group, placed in zip(cluster.groups, topology.groups, strict=True):
        own, instances = cluster.of_group(group), placed.hosts * placed.instances_per_host
        part = dataclasses.replace(
            topology,
            hosts=hostlist.compress(names[: placed.hosts]),
            host_count=placed.hosts,
            instances=instances,
            instances_per_host=placed.instances_per_host,
            replicas=instances * topology.replicas_per_instance,
            groups=[],
        )
        names = names[placed.hosts :]
        # A group's own directives override those of the job.
        others = {name: value for name, value in request.job.directives.items() if name not in group.directives}
        plan, job = dataclasses.replace(request.plan, topology=part), request.job.changed(directives=others)
        yield dataclasses.replace(request, cluster=own, plan=plan, job=job), own
