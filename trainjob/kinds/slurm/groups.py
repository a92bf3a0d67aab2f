"""A job on several groups of nodes, split into one request for each group."""

from __future__ import annotations

import dataclasses

from trainjob.cluster.nodes import Nodes
from trainjob.contract.errors import UserError
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.planning.values import Topology
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
    parts = zip(cluster.groups, request.plan.topology.of_each_group(), strict=True)
    return [_of_one(request, cluster, group, part) for group, part in parts]


def _of_one(request: Request, cluster: SlurmCluster, group: Nodes, part: Topology) -> tuple[Request, SlurmCluster]:
    own = cluster.of_group(group)
    # A group's own directives override those of the job.
    others = {name: value for name, value in request.job.directives.items() if name not in group.directives}
    plan, job = dataclasses.replace(request.plan, topology=part), request.job.changed(directives=others)
    return dataclasses.replace(request, cluster=own, plan=plan, job=job), own
