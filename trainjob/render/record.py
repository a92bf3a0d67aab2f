"""job.json: what was asked and what was worked out, as the runtime reads it."""

from __future__ import annotations

from typing import Any

from trainjob.cluster.job import Job
from trainjob.contract import tasks
from trainjob.contract.job import JobRecord, TrainSettings
from trainjob.plan.record import as_record
from trainjob.plan.values import Batch, Plan
from trainjob.render.request import Request

DEFAULT_TASK = "digits-cnn"


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
        engine=plan.engine,
        instances=plan.topology.instances,
        replicas=plan.topology.replicas,
        ipus_per_replica=plan.topology.devices_per_replica if plan.topology.device_word == "IPU" else 0,
        micro_batch=batch.micro_batch,
        accumulation=batch.accumulation,
        device_iterations=batch.device_iterations,
        epochs=batch.epochs,
        updates=batch.updates,
        remainder=batch.remainder,
        samples=batch.samples,
        optimizer=job.optimizer or facts.optimizer,
        learning_rate=plan.learning_rate or facts.learning_rate,
        momentum=job.momentum,
        weight_decay=job.weight_decay,
        schedule=job.schedule or facts.schedule,
        warmup_updates=job.warmup_updates,
        reduction=job.reduction,
        precision=job.precision,
        eight_bit_io=job.eight_bit_io,
        bucket_mb=job.bucket_mb,
        workers=job.workers,
        seed=job.seed,
        checkpoint_every=job.checkpoint_every,
        keep_checkpoints=job.keep_checkpoints,
        log_every=job.log_every,
        allow_unused_parameters=job.allow_unused_parameters,
        clip_norm=job.clip_norm,
        stall_timeout_s=job.stall_timeout_s,
        init_from=job.init_from,
        trace=job.trace,
        loss_is_summed=job.loss_is_summed or facts.loss_is_summed,
    )
