"""A pod's instances × replicas beside one process: the rehearsed job, and the same training by engine single.

The stand-in computes in float64, which no IPU can, so that the order of a sum hides nothing; weights come to the host
in float32, as a checkpoint has them. An IPU shows no gradients: parameters and losses are judged.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from trainjob.cluster.job import Job
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.plan.values import Batch
from trainjob.rehearse import kinds
from trainjob.rehearse.base import Rehearsal
from trainjob.runs.experiment import Workbench
from trainjob.verify import traces
from trainjob.verify.compare import Difference, differences
from trainjob.verify.diagnosis import Evidence, diagnose
from trainjob.verify.instances import Verdict, is_apart

# What float32 leaves of a weight is 6e-8 of it; a real mistake is above 1e-3.
TOLERANCE = 1e-6
JUDGED = "parameters, as the host sees them in float32, and loss; an IPU shows no gradients"
STANDIN_FLOAT64 = {"TRAINJOB_STANDIN_ARITHMETIC": "float64"}
# What an optimizer has gathered stays on the IPU, so that one which gathers goes on otherwise after an interruption.
WITHOUT_STATE = {"optimizer": "sgd", "momentum": 0.0}
# An IPU draws its own random numbers, so that dropout there can't be dropout here.
_WITHOUT_DROPOUT = {"digits-cnn": {"dropout": 0.0}}


def shared(job: Job, updates: int) -> dict[str, Any]:
    """Return the settings that both jobs have otherwise than was asked."""
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
    return {**WITHOUT_STATE, "precision": job.precision, "set": _without_dropout(job)}


def _without_dropout(job: Job) -> dict[str, Any]:
    return {**_WITHOUT_DROPOUT.get(job.task or "digits-cnn", {}), **job.set}


def alone(job: Job, batch: Batch, updates: int) -> Job:
    """Return the job of one process that takes the same micro batches."""
    accumulation = batch.accumulation * batch.replicas
    own = {"instances": 1, "engine": "single", "precision": "64.64", "eight_bit_io": False}
    own |= {"micro_batch": batch.micro_batch, "accumulation": accumulation, "global_batch": None}
    own |= dict.fromkeys(("replicas", "ipus_per_replica", "hosts", "device_iterations"))
    return job.model_copy(update={**shared(job, updates), **own, "poprun": {}})


def verify(asked: Rehearsal, workbench: Workbench) -> Verdict:
    """Return whether the rehearsed job trains as the workbench's does. Raises UserError when one of them fails."""
    rehearsed = _rehearsed(asked)
    one = workbench.run(workbench.request)
    traced = (traces.read(rehearsed), traces.read(one))
    found = tuple(_without_gradients(difference) for difference in differences(*traced))
    if not found:
        raise UserError(f"runs {rehearsed.id} and {one.id} have no update in common: look at their logs")
    apart = [difference for difference in found if is_apart(difference, "float64", TOLERANCE)]
    topology = asked.request.plan.topology
    evidence = Evidence(traced[0], traced[1], topology.instances, apart, TOLERANCE)
    return Verdict(
        instances=topology.instances,
        engine=asked.request.plan.engine,
        dtype="float64",
        tolerance=TOLERANCE,
        judged=JUDGED,
        stream=traced[1].stream,
        differences=found,
        findings=diagnose(evidence) if apart else [],
        runs=(rehearsed, one),
    )


def _rehearsed(asked: Rehearsal) -> RunPaths:
    verdict = kinds.rehearse(asked)
    if verdict.state != states.COMPLETED:
        raise UserError(f"the rehearsal in {asked.folder} did not end well: nothing to compare. {verdict.outcome}")
    return RunPaths(verdict.folder)


def _without_gradients(difference: Difference) -> Difference:
    return dataclasses.replace(difference, gradients=math.nan, gradient_factor=math.nan, gradient_residual=math.nan)
