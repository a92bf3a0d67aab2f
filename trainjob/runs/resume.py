"""One more attempt of a run that ended early."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainjob.cluster.job import Job
from trainjob.cluster.models import CLUSTER
from trainjob.contract import job as jobs
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.files import remove_if_there
from trainjob.contract.job import JobRecord, TrainSettings
from trainjob.contract.paths import RunPaths
from trainjob.plan.build import plan
from trainjob.render.request import Request
from trainjob.runs import arrays
from trainjob.runs.start import hand_over, hand_over_tasks, next_attempt
from trainjob.runs.status import REQUEUED_BY, status
from trainjob.submit import mirror
from trainjob.submit.base import read_submission


def check_resumable(paths: RunPaths) -> None:
    """Raise UserError unless the run has ended without being complete; of an array, unless a task has."""
    now = status(paths)
    if any(task.state in states.RESUMABLE for task in now.tasks):
        return
    if now.state in states.ACTIVE:
        raise UserError(f"run {paths.id} is {now.state}: cancel it first, or wait until it ends")
    if now.state not in states.RESUMABLE:
        raise UserError(f"run {paths.id} is {now.state}: there is nothing left to resume. Submit a new run")


def resume(paths: RunPaths) -> None:
    """Start the next attempt; the runtime goes on from its newest sound checkpoint.

    Of an array, one of each task that has ended without being complete.
    """
    if paths.task is not None:
        _resume_tasks(paths.whole, [paths])
        return
    whole = read_submission(paths)
    if arrays.tasks(paths) and whole is not None and whole.native is not None:
        ended = [RunPaths(task.folder) for task in status(paths).tasks if task.state in states.RESUMABLE]
        _resume_tasks(paths, ended)
        return
    submission = next_attempt(paths, attempt=_next_number(paths))
    remove_if_there(paths.stop)
    hand_over(paths, submission)


def _resume_tasks(whole: RunPaths, tasks: Sequence[RunPaths]) -> None:
    again = {task.task: next_attempt(task, attempt=_next_number(task)) for task in tasks if task.task is not None}
    for task in tasks:
        mirror.take_back_stop(task)
    hand_over_tasks(whole, again)


def _next_number(paths: RunPaths) -> int:
    last = read_submission(paths)
    if last is not None and last.native is None and last.backend in REQUEUED_BY:
        # The hand-over was cut, and its job may be there: it is looked for, and is this attempt.
        return last.attempt
    return status(paths).attempt + 1


def with_instances(paths: RunPaths, instances: int) -> Request:
    """Return the run's own request with another number of instances and the same global batch.

    Raises Refusal when the global batch does not divide, UserError for a run of a user's command.
    """
    record = jobs.read(paths.job)
    if paths.task is not None or arrays.tasks(paths):
        raise UserError(
            f"run {paths.id}: one script starts all tasks of an array, so --instances is one for all of them"
        )
    if record.train is None:
        raise UserError(f"run {paths.id} runs a command of your own: submit it again with --instances {instances}")
    cluster = CLUSTER.validate_python(record.asked["cluster"]["file"])
    job = Job.model_validate(_asked_with(record, instances))
    name = record.asked["cluster"]["name"]
    _refuse_uneven(record.train, instances)
    return Request(
        cluster=cluster,
        cluster_origin=record.asked["cluster"]["from"],
        job=job,
        origins={**record.asked["origins"], "instances": "flag --instances"},
        plan=plan(name, cluster, job),
    )


def _refuse_uneven(train: TrainSettings, instances: int) -> None:
    micro_batches = train.accumulation * train.replicas
    if instances >= 1 and micro_batches % instances == 0:
        return
    fitting = [number for number in range(1, micro_batches + 1) if micro_batches % number == 0]
    raise UserError(
        f"the global batch stays {micro_batches} micro batches of {train.micro_batch} samples, which every instance "
        f"shares equally: {instances} instances. Those that can: {', '.join(str(number) for number in fitting[:16])}"
    )


def _asked_with(record: JobRecord, instances: int) -> dict[str, Any]:
    train = record.train
    assert train is not None  # noqa: S101 - the caller has refused commands
    asked = {key: value for key, value in record.asked["job"].items() if key != "accumulation"}
    kept = {"global_batch": train.micro_batch * train.accumulation * train.replicas, "micro_batch": train.micro_batch}
    return {**asked, **kept, "name": record.name, "instances": instances}
