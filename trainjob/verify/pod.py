"""Compares a pod's instances × replicas with one process: the rehearsed job, and the same training by engine single.

The stand-in computes in float64, which no IPU can, so that the order of a sum hides nothing; weights come to the host
in float32, as a checkpoint has them. An IPU shows no gradients: parameters and losses are judged.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainjob.cluster.base import IpuCluster
from trainjob.cluster.job import Job
from trainjob.contract import states
from trainjob.contract.batch import Batch
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.contract.tasks import DEFAULT_TASK
from trainjob.kinds.lookup import find
from trainjob.planning.build import plan
from trainjob.rehearse import kinds
from trainjob.rehearse.base import Rehearsal, redirects, rehearsal
from trainjob.rehearse.pod_environment import environment
from trainjob.render.request import Request
from trainjob.requests.prepared import Prepared, data_dir
from trainjob.requests.workbench import Workbench
from trainjob.verify import traces
from trainjob.verify.compare import Difference, differences
from trainjob.verify.diagnosis import Evidence, diagnose
from trainjob.verify.instances import Verdict, is_apart

# float32 rounds a weight by 6e-8 of it; a real mistake is above 1e-3.
TOLERANCE = 1e-6
JUDGED = "parameters, as the host sees them in float32, and loss; an IPU shows no gradients"
STANDIN_FLOAT64 = {"TRAINJOB_STANDIN_ARITHMETIC": "float64"}
# An IPU draws its own random numbers, so that dropout there can't be dropout here.
_WITHOUT_DROPOUT = {"digits-cnn": {"dropout": 0.0}}


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
        "set": _without_dropout(job),
    }


def resumable(job: Job) -> dict[str, Any]:
    """Return the settings with which an interrupted job must end as an uninterrupted one, bit for bit."""
    return {"precision": job.precision, "set": _without_dropout(job)}


def _without_dropout(job: Job) -> dict[str, Any]:
    return {**_WITHOUT_DROPOUT.get(job.task or DEFAULT_TASK, {}), **job.set}


def alone(job: Job, batch: Batch, updates: int) -> Job:
    """Return the job of one process that takes the same micro batches."""
    accumulation = batch.accumulation * batch.replicas
    own = {"instances": 1, "engine": "single", "precision": "64.64", "eight_bit_io": False}
    own |= {"micro_batch": batch.micro_batch, "accumulation": accumulation, "global_batch": None}
    own |= dict.fromkeys(("replicas", "ipus_per_replica", "hosts", "device_iterations"))
    return job.changed(**{**shared(job, updates), **own, "poprun": {}})


def verify(prepared: Prepared, bench: Workbench, *, updates: int) -> Verdict:
    """Return whether the pod's job, rehearsed, trains as one process does. Raises UserError when one of them fails."""
    asked = prepared.request
    if asked.plan.batch is None:
        raise UserError(
            "verify trains a task, and the updates of a command of your own can't be observed", "give --task"
        )
    bits = {"precision": "32.32", "eight_bit_io": True}
    pod_job = prepared.changed(**shared(asked.job, updates), **bits)
    bench.say(f"{asked.plan.name}: rehearsing the pod, {updates} updates …")
    rehearsed = _rehearsed(rehearsal(pod_job, folder=bench.folder, redirected=STANDIN_FLOAT64))
    here = find("local")
    job = alone(asked.job, asked.plan.batch, updates)
    planned = plan(here.name, here.cluster, job)
    one = bench.run(
        dataclasses.replace(asked, cluster=here.cluster, cluster_origin=here.origin_word, job=job, plan=planned)
    )
    return _judged(pod_job.request, rehearsed, one)


def _judged(request: Request, rehearsed: RunPaths, one: RunPaths) -> Verdict:
    traced = (traces.read(rehearsed), traces.read(one))
    found = tuple(_without_gradients(difference) for difference in differences(*traced))
    if not found:
        raise UserError(f"{rehearsed.folder} and {one.folder} have no update in common", "read their logs")
    apart = [difference for difference in found if is_apart(difference, "float64", TOLERANCE)]
    topology = request.plan.topology
    evidence = Evidence(traced[0], traced[1], topology.instances, apart, TOLERANCE)
    return Verdict(
        instances=topology.instances,
        engine=request.plan.engine,
        dtype="float64",
        tolerance=TOLERANCE,
        judged=JUDGED,
        stream=traced[1].stream,
        differences=found,
        findings=diagnose(evidence) if apart else [],
        runs=(rehearsed, one),
    )


def _rehearsed(trial: Rehearsal) -> RunPaths:
    verdict = kinds.rehearse(trial)
    if verdict.state != states.COMPLETED:
        raise UserError(
            f"the rehearsal in {trial.folder} failed, so there is nothing to compare: {verdict.outcome}",
            f"see why: trainjob logs {trial.folder}",
        )
    return RunPaths(verdict.folder)


@contextlib.contextmanager
def standing_in(prepared: Prepared) -> Iterator[None]:
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


def _without_gradients(difference: Difference) -> Difference:
    return dataclasses.replace(difference, gradients=math.nan, gradient_factor=math.nan, gradient_residual=math.nan)
