"""One more attempt of a run that ended early."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from trainjob.backends import mirror, registry
from trainjob.cluster.job import Job
from trainjob.contract import clock, states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.kinds import table
from trainjob.lifecycle.start import hand_over, hand_over_elements
from trainjob.observe import index
from trainjob.observe.status import Snapshot
from trainjob.planning.build import plan
from trainjob.records import checkpoints
from trainjob.records import job as jobs
from trainjob.records.job import JobRecord, TrainSettings
from trainjob.records.submission import Submission
from trainjob.render.request import Request

_EVEN_COMPLETED = states.RESUMABLE | {states.COMPLETED}


def refuse_unless_ended(now: Snapshot, *, completed: bool = False) -> None:
    """Raise UserError unless the run has ended early; for an array, unless one of its elements has.

    `completed`: one that is called COMPLETED may go on as well. A copy of a run directory is refused: it names jobs,
    processes and partitions that only the original may use.
    """
    if now.submission is not None and now.submission.copy_of is not None:
        raise UserError(
            f"run {now.id} in {now.folder} is a copy of {now.submission.copy_of}",
            f"Resume the original (trainjob resume {now.submission.copy_of}), or submit a new run",
        )
    later = None if now.submission is None else now.submission.continued_as
    if later in index.ids():
        raise UserError(f"run {now.id} went on as run {later}", f"Resume that one: trainjob resume {later}")
    resumable = _EVEN_COMPLETED if completed else states.RESUMABLE
    if any(element.state in resumable for element in now.elements):
        return
    if now.state in states.ACTIVE:
        raise UserError(f"run {now.id} is {now.state}", "cancel it first, or wait until it ends")
    if now.state not in resumable:
        raise UserError(
            f"run {now.id} is {now.state}, so there is nothing left to resume",
            f"Submit a new run; or, if it ended early all the same: trainjob resume --completed {now.id}",
        )


def passed_over(now: Snapshot) -> list[str]:
    """Return a line about each checkpoint that the next attempt passes over.

    Raises UserError if all checkpoints of the run are damaged. Those on another machine are the ranks' to judge.
    """
    return [line for one in now.parts for line in checkpoints.passed_over(one.paths.checkpoints)]


def start_over(now: Snapshot) -> None:
    """Set all checkpoints of the run aside, so that its next attempt starts from scratch."""
    for one in now.parts:
        checkpoints.set_aside(one.paths.checkpoints)
        mirror.set_checkpoints_aside(one.paths, one.submission)


def resume(now: Snapshot, *, completed: bool = False) -> None:
    """Start the next attempt, which continues from the newest sound checkpoint.

    For an array: one attempt of each element that has ended early; `completed`: or is called COMPLETED.
    """
    paths = now.paths
    if paths.element is not None:
        _resume_elements(paths.whole, [now])
        return
    if now.elements and now.submission is not None and now.submission.native is not None:
        _resume_elements(paths, parts_to_resume(now, completed=completed))
        return
    submission = _next_attempt(now)
    paths.stop.unlink(missing_ok=True)
    paths.allocation.unlink(missing_ok=True)
    for folder in (paths.logs, paths.checkpoints):
        try:
            folder.mkdir(mode=0o755, exist_ok=True)  # a user may have removed it
        except OSError as error:
            raise UserError(f"{folder} can't be created ({error.strerror})", "Remove what is in its place") from None
    hand_over(paths, submission, before=now.submission)


def parts_to_resume(now: Snapshot, *, completed: bool = False) -> list[Snapshot]:
    """Return the elements of an array that `resume` starts; of any other run, and of one never submitted, the whole."""
    if not now.elements or now.submission is None or now.submission.native is None:
        return [now]
    return [one for one in now.elements if one.state in (_EVEN_COMPLETED if completed else states.RESUMABLE)]


def _resume_elements(whole: RunPaths, elements: Sequence[Snapshot]) -> None:
    again = {number: _next_attempt(one) for one in elements if (number := one.paths.element) is not None}
    for one in elements:
        mirror.take_back_stop(one.paths, one.submission)
    hand_over_elements(whole, again)


def _next_attempt(now: Snapshot) -> Submission:
    """Return the submission that starts one more attempt of a run. Raises UserError for a run never submitted."""
    last = now.submission
    if last is None and now.damage:
        raise UserError(f"run {now.id} can't be resumed: {now.damage[0]}", "Submit a new run")
    if last is None:
        raise UserError(f"run {now.id} was started by hand", "run its job script again by hand")
    earlier = [*last.earlier, *([] if last.native is None else [last.native])]
    again = last.replace(native=None, cancelled_at=None, is_cancelled=False, is_unknown=False, earlier=earlier)
    backend = registry.get(last.backend)
    if last.native is None and backend.HAS_SCHEDULER:
        # The submission was interrupted, and its job may exist: it is looked for, and is this attempt.
        return again
    # The runs that the first attempt waited for are COMPLETED.
    at = datetime.fromtimestamp(clock.time(), UTC).isoformat(timespec="seconds")
    argv = backend.argv(now.paths, last.script, inside=last.inside)
    return again.replace(attempt=now.attempt + 1, after=(), argv=argv, resumed_at=at)


def with_instances(paths: RunPaths, instances: int) -> Request:
    """Return the run's own request with another number of instances and the same global batch.

    Raises Refusal when the global batch does not divide, UserError for a run of a user's command.
    """
    record = jobs.read(paths.job)
    if paths.element is not None or paths.elements():
        raise UserError(
            f"run {paths.id}: one script starts every element of an array, so --instances can't differ among them",
            "Resume without --instances, or submit a new array",
        )
    if record.train is None:
        raise UserError(f"run {paths.id} runs a command of your own", f"submit it again with --instances {instances}")
    refuse_uneven(record.train.micro_batch, record.train.accumulation * record.train.replicas, instances)
    job = with_its_batch(record, record.train)
    if instances % (record.request.job.get("hosts") or 1):
        # --hosts was meant for the other number of instances: the plan chooses anew.
        del job["hosts"]
    job["instances"] = instances
    return request_of(record, job=job, origins={"instances": "flag --instances"})


def with_its_batch(record: JobRecord, train: TrainSettings) -> dict[str, object]:
    """Return the run's job as it was stated, with its micro batch and global batch in place of what made them."""
    job = {key: value for key, value in record.request.job.items() if key not in ("accumulation", "least_hosts")}
    if record.plan.topology.device != "IPU":
        job.pop("replicas", None)
    kept = {"global_batch": train.micro_batch * train.accumulation * train.replicas, "micro_batch": train.micro_batch}
    return {**job, **kept}


def request_of(
    record: JobRecord,
    *,
    job: Mapping[str, object] | None = None,
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
