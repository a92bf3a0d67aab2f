"""One more attempt of a run that ended early."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainjob.backends import mirror, registry
from trainjob.backends.base import read_submission
from trainjob.cluster.job import Job
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.kinds import table
from trainjob.lifecycle.start import hand_over, hand_over_elements, next_attempt
from trainjob.observe import arrays
from trainjob.observe.status import status
from trainjob.planning.build import plan
from trainjob.records import checkpoints
from trainjob.records import job as jobs
from trainjob.records.files import remove_if_there
from trainjob.records.job import JobRecord
from trainjob.render.request import Request


def check_resumable(paths: RunPaths) -> None:
    """Raise UserError unless the run has ended early; for an array, unless one of its elements has."""
    now = status(paths)
    if any(element.state in states.RESUMABLE for element in now.elements):
        return
    if now.state in states.ACTIVE:
        raise UserError(f"run {paths.id} is {now.state}", "cancel it first, or wait until it ends")
    if now.state not in states.RESUMABLE:
        raise UserError(f"run {paths.id} is {now.state}, so there is nothing left to resume", "Submit a new run")


def passed_over(paths: RunPaths) -> list[str]:
    """Return a line about each checkpoint that the next attempt passes over.

    Raises UserError if all checkpoints of the run are damaged. Those on another machine are the ranks' to judge.
    """
    runs = [RunPaths(element.folder) for element in status(paths).elements] or [paths]
    return [line for one in runs for line in checkpoints.passed_over(one.checkpoints)]


def start_over(paths: RunPaths) -> None:
    """Set all checkpoints of the run aside, so that its next attempt starts from scratch."""
    for one in [RunPaths(element.folder) for element in status(paths).elements] or [paths]:
        checkpoints.set_aside(one.checkpoints)
        mirror.set_checkpoints_aside(one)


def resume(paths: RunPaths) -> None:
    """Start the next attempt, which continues from the newest sound checkpoint.

    For an array: one attempt of each element that has ended early.
    """
    if paths.element is not None:
        _resume_elements(paths.whole, [paths])
        return
    whole = read_submission(paths)
    if arrays.elements(paths) and whole is not None and whole.native is not None:
        ended = [RunPaths(one.folder) for one in status(paths).elements if one.state in states.RESUMABLE]
        _resume_elements(paths, ended)
        return
    submission = next_attempt(paths, attempt=_next_number(paths))
    remove_if_there(paths.stop)
    _make_folders(paths)
    hand_over(paths, submission)


def _make_folders(paths: RunPaths) -> None:
    """Make the folders that an attempt writes to, where somebody has removed them. Raises UserError."""
    for folder in (paths.logs, paths.checkpoints):
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise UserError(f"{folder} can't be created ({error.strerror})", "Remove what is in its place") from None


def _resume_elements(whole: RunPaths, elements: Sequence[RunPaths]) -> None:
    again = {one.element: next_attempt(one, attempt=_next_number(one)) for one in elements if one.element is not None}
    for one in elements:
        mirror.take_back_stop(one)
    hand_over_elements(whole, again)


def _next_number(paths: RunPaths) -> int:
    last = read_submission(paths)
    if last is not None and last.native is None and registry.get(last.backend).HAS_SCHEDULER:
        # The submission was interrupted, and its job may exist: it is looked for, and is this attempt.
        return last.attempt
    return status(paths).attempt + 1


def with_instances(paths: RunPaths, instances: int) -> Request:
    """Return the run's own request with another number of instances and the same global batch.

    Raises Refusal when the global batch does not divide, UserError for a run of a user's command.
    """
    record = jobs.read(paths.job)
    if paths.element is not None or arrays.elements(paths):
        raise UserError(
            f"run {paths.id}: one script starts every element of an array, so --instances can't differ among them",
            "Resume without --instances, or submit a new array",
        )
    if record.train is None:
        raise UserError(f"run {paths.id} runs a command of your own", f"submit it again with --instances {instances}")
    refuse_uneven(record.train.micro_batch, record.train.accumulation * record.train.replicas, instances)
    return request_of(record, job=_stated_with(record, instances), origins={"instances": "flag --instances"})


def request_of(
    record: JobRecord,
    *,
    job: Mapping[str, Any] | None = None,
    origins: Mapping[str, str] | None = None,
) -> Request:
    """Return the request that job.json records, planned anew; `job` replaces what was stated. Raises Refusal."""
    cluster = table.recorded_cluster(record)
    stated = Job.of({**(record.request.job if job is None else job), "name": record.name})
    return Request(
        cluster=cluster,
        cluster_origin=record.request.cluster.source,
        job=stated,
        origins={**record.request.origins, **(origins or {})},
        plan=plan(record.request.cluster.name, cluster, stated),
    )


def refuse_uneven(micro_batch: int, micro_batches: int, instances: int) -> None:
    """Raise UserError where `instances` can't share a global batch of `micro_batches`."""
    if instances >= 1 and micro_batches % instances == 0:
        return
    fitting = [number for number in range(1, micro_batches + 1) if micro_batches % number == 0]
    raise UserError(
        f"a resumed run keeps its global batch of {micro_batches} micro batches of {micro_batch} samples, and "
        f"{instances} instances can't share them equally",
        f"Give --instances one of {', '.join(str(number) for number in fitting[:16])}",
    )


def _stated_with(record: JobRecord, instances: int) -> dict[str, Any]:
    train = record.train
    assert train is not None  # noqa: S101 - the caller has refused commands
    stated = {key: value for key, value in record.request.job.items() if key != "accumulation"}
    if instances % (stated.get("hosts") or 1):
        # --hosts was said of the other number of instances: the plan chooses anew.
        del stated["hosts"]
    stated.pop("least_hosts", None)
    if record.plan.topology.device != "IPU":
        stated.pop("replicas", None)
    kept = {"global_batch": train.micro_batch * train.accumulation * train.replicas, "micro_batch": train.micro_batch}
    return {**stated, **kept, "instances": instances}
