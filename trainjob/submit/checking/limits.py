"""A Slurm job beside the limits that the cluster file states: nothing is asked of anybody."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainjob.cluster.models import SlurmCluster
from trainjob.cluster.site import missing_facts
from trainjob.render.directives import cpus_per_task
from trainjob.render.request import Request
from trainjob.submit.checking.problem import Problem

# sbatch reads a bare number as megabytes.
_UNITS_MB = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0 * 1024}
_MEMORY = re.compile(r"([0-9]+)([KMGT]?)B?", re.IGNORECASE)
_ACCELERATORS = ("gres", "gpus-per-node")


def problems(name: str, request: Request, cluster: SlurmCluster) -> Iterator[Problem]:
    """Yield what the cluster file says that the site would refuse."""
    for key in missing_facts(cluster):
        cure = f"Fill it in: trainjob cluster init NAME --from-slurm drafts a file from the live cluster {name}"
        if key.startswith(("sdk.", "vipu.")):
            cure = "Fill it in: trainjob cluster show slurm-ipu says what it is"
        yield Problem("missing", f"{key} is missing in {request.cluster_origin}, and the site needs it", cure)
    yield from _memory(request, cluster)
    yield from _accelerators(cluster)


def memory_mb(request: Request, cluster: SlurmCluster) -> tuple[str, float] | None:
    """Return which directive asks for a node's memory, and how much that is in MB; None where none does."""
    ranks = request.plan.topology.instances_per_host
    factors = {
        "mem": 1,
        "mem-per-cpu": ranks * cpus_per_task(cluster, ranks),
        "mem-per-gpu": max(1, request.plan.topology.devices // len(request.plan.topology.hosts)),
    }
    for option, factor in factors.items():
        found = _MEMORY.fullmatch(str(cluster.directives.get(option, "")))
        if found:
            return option, int(found[1]) * _UNITS_MB[found[2].upper()] * factor
    return None


def _memory(request: Request, cluster: SlurmCluster) -> Iterator[Problem]:
    asked, most_gb = memory_mb(request, cluster), cluster.nodes.memory_gb
    if asked is None or most_gb is None or asked[1] <= most_gb * 1024:
        return
    option, wanted_mb = asked
    ranks = request.plan.topology.instances_per_host
    yield Problem(
        "memory",
        f"directives.{option} {cluster.directives[option]} is {wanted_mb / 1024:g} GB a node "
        f"({wanted_mb / 1024 / ranks:g} GB for each of {ranks} ranks), and nodes.memory_gb is {most_gb}",
        f"Nearest that can: directives.mem {most_gb}G ({most_gb / ranks:g} GB a rank), or fewer instances a node",
    )


def _accelerators(cluster: SlurmCluster) -> Iterator[Problem]:
    for option in _ACCELERATORS:
        last = str(cluster.directives.get(option, "")).rpartition(":")[2]
        if last.isdigit() and int(last) > cluster.nodes.accelerators:
            most = cluster.nodes.accelerators
            text = f"directives.{option} asks for {last} accelerators of a node, and nodes.accelerators is {most}"
            yield Problem("accelerators", text, f"Nearest that can: {most}, or take the directive out")
