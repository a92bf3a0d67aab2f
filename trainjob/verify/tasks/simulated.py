"""Verifies jobs for hardware that is not here: a pod's, rehearsed, and a Slurm cluster's GPUs, as stand-ins.

A pod's instances × replicas are compared with the same training by engine single in one process. The stand-in computes
in float64, which no IPU can, so that the order of a sum hides nothing; weights come to the host in float32, as a
checkpoint has them. An IPU shows no gradients: parameters and losses are judged.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainjob.cluster.base import Cluster, IpuCluster
from trainjob.cluster.job import Job
from trainjob.contract import states
from trainjob.contract.batch import Batch
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.contract.tasks import DEFAULT_TASK
from trainjob.kinds.lookup import find
from trainjob.kinds.table import cluster_of
from trainjob.planning.build import plan
from trainjob.rehearse import gpus, kinds
from trainjob.rehearse.base import redirects, rehearsal
from trainjob.rehearse.pod import environment
from trainjob.requests.prepared import Prepared, data_dir
from trainjob.requests.workbench import Workbench
from trainjob.verify.tasks import traces
from trainjob.verify.tasks.diagnosis import TraceEvidence, diagnose
from trainjob.verify.tasks.instances import InstancesVerdict, is_apart
from trainjob.verify.tasks.traces import differences

# float32 rounds a weight by 6e-8 of it; a real mistake is above 1e-3.
TOLERANCE = 1e-6
JUDGED = "parameters, as the host sees them in float32, and loss; an IPU shows no gradients"
STANDIN_FLOAT64 = {"TRAINJOB_STANDIN_ARITHMETIC": "float64"}


def without_dropout(job: Job) -> dict[str, Any]:
    """Return the options of the job's task; the default task's without dropout, which an IPU draws otherwise."""
    off = {"dropout": 0.0} if (job.task or DEFAULT_TASK) == "digits-cnn" else {}
    return {**off, **job.set}


def shared(job: Job, updates: int) -> dict[str, Any]:
    """Return the settings that both jobs have instead of the requested ones."""
    return {
        "updates": updates,
        "epochs": None,
        "log_every": job.device_iterations or 1,  # a block's losses come together: means of as many updates
        "checkpoint_every": 0,
        "trace": "full",
        "env": {**job.env, "OMP_NUM_THREADS": "1"},
        # Rates change between blocks of device iterations, and here from update to update.
        "schedule": "constant",
        "warmup_updates": 0,
        "set": without_dropout(job),
    }


def resumable(job: Job) -> dict[str, Any]:
    """Return the settings with which an interrupted job must end as an uninterrupted one, bit for bit."""
    return {"precision": job.precision, "set": without_dropout(job)}


def alone(job: Job, batch: Batch, updates: int) -> Job:
    """Return the job of one process that takes the same micro batches."""
    accumulation = batch.accumulation * batch.replicas
    own = {"instances": 1, "engine": "single", "precision": "64.64", "eight_bit_io": False}
    own |= {"micro_batch": batch.micro_batch, "accumulation": accumulation, "global_batch": None}
    own |= dict.fromkeys(("replicas", "ipus_per_replica", "hosts", "device_iterations"))
    return job.changed(**{**shared(job, updates), **own, "poprun": {}})


def verify_pod(prepared: Prepared, bench: Workbench, *, updates: int) -> InstancesVerdict:
    """Return whether the pod's job, rehearsed, trains as one process does. Raises UserError when one of them fails."""
    asked = prepared.request
    if asked.plan.batch is None:
        raise UserError(
            "verify trains a task, and the updates of a command of your own can't be observed", "give --task"
        )
    bits = {"precision": "32.32", "eight_bit_io": True}
    pod_job = prepared.changed(**shared(asked.job, updates), **bits)
    bench.say(f"{asked.plan.name}: rehearsing the pod, {updates} updates …")
    rehearsed_job = rehearsal(pod_job, into=bench.folder, redirected=STANDIN_FLOAT64)
    verdict = kinds.rehearse(rehearsed_job)
    if verdict.state != states.COMPLETED:
        raise UserError(
            f"the rehearsal in {rehearsed_job.folder} failed, so there is nothing to compare: {verdict.outcome}",
            f"see why: trainjob logs {rehearsed_job.folder}",
        )
    here = find("local")
    job = alone(asked.job, asked.plan.batch, updates)
    planned = plan(here.name, here.cluster, job)
    one = bench.run(
        dataclasses.replace(asked, cluster=here.cluster, cluster_origin=here.origin_word, job=job, plan=planned)
    )
    rehearsed = RunPaths(verdict.folder)
    traced = (traces.read(rehearsed), traces.read(one))
    found = tuple(
        dataclasses.replace(difference, gradients=math.nan, gradient_factor=math.nan, gradient_residual=math.nan)
        for difference in differences(*traced)
    )
    if not found:
        raise UserError(f"{rehearsed.folder} and {one.folder} have no update in common", "read their logs")
    apart = [difference for difference in found if is_apart(difference, "float64", TOLERANCE)]
    instances = pod_job.request.plan.topology.instances
    return InstancesVerdict(
        instances=instances,
        engine=pod_job.request.plan.engine,
        dtype="float64",
        tolerance=TOLERANCE,
        judged=JUDGED,
        stream=traced[1].stream,
        differences=found,
        findings=diagnose(TraceEvidence(*traced, instances, apart, TOLERANCE)) if apart else [],
        runs=(rehearsed, one),
    )


@contextlib.contextmanager
def pod_on_path(prepared: Prepared) -> Iterator[None]:
    """While this lasts, processes started on this machine find stand-ins for a pod's programs on their paths."""
    cluster, before = IpuCluster.of(prepared.named_cluster.cluster), dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="trainjob-pod-") as place:
        redirected = redirects(cluster, before, None, data_dir(find("local")))
        os.environ.update(environment(Path(place), cluster, cluster.capacity.ipus or 0, redirected))
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def has_simulated_gpus(cluster: Cluster) -> bool:
    """Return whether the cluster has GPUs that this machine can simulate."""
    return cluster.has_scheduler and cluster.accelerator == "gpu"


@contextlib.contextmanager
def on_simulated_gpus(prepared: Prepared) -> Iterator[Prepared]:
    """Yield the job as it trains on this machine, with a stand-in GPU for each instance; any other job as it is."""
    cluster = prepared.named_cluster.cluster
    if not has_simulated_gpus(cluster):
        yield prepared
        return
    count = max(prepared.request.plan.topology.instances, cluster.accelerators_per_host or 0)
    here = cluster_of({"kind": "local", "accelerator": "gpu", "accelerators": count})
    job = prepared.request.job.changed(hosts=None)
    found = prepared.named_cluster._replace(cluster=here)
    request = dataclasses.replace(prepared.request, cluster=here, job=job, plan=plan(found.name, here, job))
    with gpus.visible_here(sys.executable, count, cluster.accelerator_type):
        yield dataclasses.replace(prepared, named_cluster=found, request=request)
