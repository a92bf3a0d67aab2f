"""job.json, which the runtime reads: the request, the plan, and the settings of the training."""

from __future__ import annotations

from trainjob.contract import tasks
from trainjob.contract.batch import Batch
from trainjob.contract.settings import RuntimeSettings, names
from trainjob.planning import learning, limits, work
from trainjob.records.job import ClusterRecord, JobRecord, RequestRecord, TrainSettings
from trainjob.render import library
from trainjob.render.request import Request


def job_record(request: Request) -> JobRecord:
    """Return the record whose text is job.json. Equal requests give the same text."""
    cluster_file = request.cluster.as_values(stated_only=True)
    cluster = ClusterRecord(request.plan.cluster, cluster_file, request.cluster_origin)
    return JobRecord(
        name=request.plan.name,
        request=RequestRecord(cluster, request.job.given(), dict(sorted(request.origins.items()))),
        plan=request.plan,
        train=None if request.plan.batch is None else _settings(request, request.plan.batch),
        command=request.job.command,
        secrets_file=request.cluster.secrets_file,
        environment=environment(request),
        library=library.digest(),
    )


def environment(request: Request) -> dict[str, str]:
    """Return the environment of every rank: the job's over the cluster file's over the plan's, sorted by name."""
    planned = work.threads(request.job, request.plan.topology.device)
    return dict(sorted({**planned, **request.cluster.env, **request.job.env}.items()))


def _settings(request: Request, batch: Batch) -> TrainSettings:
    job, plan = request.job, request.plan
    task = job.task or tasks.DEFAULT_TASK
    facts, topology = tasks.facts(task) or tasks.UNKNOWN, plan.topology
    return TrainSettings(
        task=task,
        task_options=dict(job.set),
        entry=facts.entry,
        data=job.data or facts.data,
        optimizer=job.optimizer or facts.optimizer,
        learning_rate=learning.rate(job, facts, batch),
        schedule=job.schedule or facts.schedule,
        loss_is_summed=job.loss_is_summed or facts.loss_is_summed,
        **{name: getattr(job, name) for name in names(RuntimeSettings)},
        engine=plan.engine,
        instances=topology.instances,
        ipus_per_replica=topology.devices_per_replica if topology.device == "IPU" else 0,
        failure_every_s=limits.failure_every_s(request.cluster, topology.host_count),
        limit_margin_s=request.times.asked_before_s,
        replicas=batch.replicas,
        micro_batch=batch.micro_batch,
        accumulation=batch.accumulation,
        device_iterations=batch.device_iterations,
        epochs=batch.epochs,
        updates=batch.updates,
        remainder=batch.remainder,
        samples=batch.samples,
        least_instances=None if job.least_hosts is None else job.least_hosts * topology.instances_per_host,
    )
