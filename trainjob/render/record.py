"""job.json: what was asked and what was worked out, as the runtime reads it."""

from __future__ import annotations

import dataclasses
from typing import Any

from trainjob.cluster.job import Job
from trainjob.contract import tasks
from trainjob.contract.job import JobRecord, TrainSettings
from trainjob.plan.record import as_record
from trainjob.plan.values import Batch, Plan
from trainjob.render.request import Request

DEFAULT_TASK = "digits-cnn"
# Settings that the runtime takes as the job has them.
_AS_ASKED = (
    *("momentum", "weight_decay", "warmup_updates", "clip_norm", "reduction", "bucket_mb", "allow_unused_parameters"),
    *("precision", "eight_bit_io", "workers", "seed", "init_from"),
    *("checkpoint_every", "keep_checkpoints", "log_every", "stall_timeout_s", "trace"),
)


def job_record(request: Request) -> JobRecord:
    """Return the record whose text is job.json: the same request gives the same text."""
    return JobRecord(
        name=request.plan.name,
        asked=_asked(request),
        plan=as_record(request.plan),
        train=None if request.plan.batch is None else _settings(request.job, request.plan, request.plan.batch),
        command=request.job.command,
        secrets_file=request.cluster.secrets_file,
        environment=environment(request),
    )


def environment(request: Request) -> dict[str, str]:
    """Return the environment of every rank: the job's over the cluster file's, sorted by name."""
    return dict(sorted({**request.cluster.env, **request.job.env}.items()))


def _asked(request: Request) -> dict[str, Any]:
    return {
        "cluster": {
            "name": request.plan.cluster,
            "from": request.cluster_origin,
            "file": request.cluster.model_dump(mode="json", exclude_unset=True),
        },
        "job": request.job.model_dump(mode="json", exclude_unset=True),
        "origins": dict(sorted(request.origins.items())),
    }


def _settings(job: Job, plan: Plan, batch: Batch) -> TrainSettings:
    task = job.task or DEFAULT_TASK
    facts = tasks.facts(task) or tasks.UNKNOWN
    return TrainSettings(
        task=task,
        task_options=dict(job.set),
        entry=facts.entry,
        data=job.data or facts.data,
        optimizer=job.optimizer or facts.optimizer,
        learning_rate=plan.learning_rate or facts.learning_rate,
        schedule=job.schedule or facts.schedule,
        loss_is_summed=job.loss_is_summed or facts.loss_is_summed,
        **{name: getattr(job, name) for name in _AS_ASKED},
        **_worked_out(plan, batch),
    )


def _worked_out(plan: Plan, batch: Batch) -> dict[str, Any]:
    topology = plan.topology
    return {
        "engine": plan.engine,
        "instances": topology.instances,
        "ipus_per_replica": topology.devices_per_replica if topology.device_word == "IPU" else 0,
        **dataclasses.asdict(batch),
    }
