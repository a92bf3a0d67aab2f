"""Stand-ins for a Slurm cluster's GPUs: N instances over NCCL against one, on the runtime's own GPU code paths."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterator

from trainjob.cluster.base import Cluster
from trainjob.kinds.table import cluster_of
from trainjob.planning.build import plan
from trainjob.rehearse import gpus
from trainjob.requests.prepared import Prepared

_SLURM_ONLY = ("hosts",)


def are_of(cluster: Cluster) -> bool:
    """Return whether the cluster has GPUs that this machine can simulate."""
    return cluster.has_scheduler and cluster.accelerator == "gpu"


@contextlib.contextmanager
def standing_in(prepared: Prepared) -> Iterator[Prepared]:
    """Yield the job as it trains on this machine, with a stand-in GPU for each instance; any other job as it is."""
    cluster = prepared.named_cluster.cluster
    if not are_of(cluster):
        yield prepared
        return
    count = max(prepared.request.plan.topology.instances, cluster.accelerators_per_host or 0)
    here = cluster_of({"kind": "local", "accelerator": "gpu", "accelerators": count})
    job = prepared.request.job.changed(**dict.fromkeys(_SLURM_ONLY))
    found = dataclasses.replace(prepared.named_cluster, cluster=here)
    request = dataclasses.replace(prepared.request, cluster=here, job=job, plan=plan(found.name, here, job))
    with gpus.visible_here(sys.executable, count, cluster.accelerator_type):
        yield dataclasses.replace(prepared, named_cluster=found, request=request)
