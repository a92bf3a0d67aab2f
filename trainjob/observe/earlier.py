"""Earlier runs of a job: how long they took, and whether their checkpoints fit before the time limit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainjob.contract import states
from trainjob.contract.errors import Problem, UserError
from trainjob.contract.paths import RunPaths
from trainjob.observe import index
from trainjob.planning.words import seconds
from trainjob.records import attempts, checkpoints, events
from trainjob.records import job as jobs
from trainjob.records.job import JobRecord
from trainjob.render.record import job_record
from trainjob.render.request import Request

# How many of the newest runs are considered, and how many runs of the same work are read.
_MOST_RUNS, _MOST_READ = 100, 24
# How many of the newest runs tell how long the next one takes: machines and code change.
_NEWEST = 5
# A longer metrics.jsonl would delay a submission.
_MOST_METRICS_BYTES = 4_000_000


@dataclass(frozen=True)
class EarlierRuns:
    """The newest complete runs of a job: how many, and the allocated time of all attempts of a run."""

    count: int
    shortest_s: float
    longest_s: float

    def __str__(self) -> str:
        """Return them in words: 3 took 10.1 s to 12.3 s."""
        longest = "" if self.count == 1 else f" to {seconds(self.longest_s)}"
        return f"{self.count} took {seconds(self.shortest_s)}{longest}"


def earlier_runs(record: JobRecord, but: str = "") -> EarlierRuns | None:
    """Return the newest complete runs of the same job on the same cluster, at most five; None if there is none.

    The same job is the same task with the same settings, or the same command, on the same number of instances and
    hosts. `but` is the id of a run that does not count.
    """
    taken: list[float] = []
    for paths, earlier in _same_work(record):
        if paths.id == but or _extent(earlier) != _extent(record):
            continue
        of_run = events.attempts(events.read(paths))
        if of_run and all(one.ended_at is not None for one in of_run):
            taken.append(sum((one.ended_at or 0.0) - one.began_at for one in of_run))
        if len(taken) == _NEWEST:
            break
    return EarlierRuns(len(taken), min(taken), max(taken)) if taken else None


def record_of(request: Request) -> JobRecord:
    """Return the job.json that would be submitted, as it would be read back: some types differ."""
    return jobs.parse(job_record(request).to_json())


def too_late_for_a_checkpoint(request: Request) -> Iterator[Problem]:
    """Yield a problem if the job is asked to stop too late for a checkpoint as slow as those of earlier runs."""
    margin_s = request.times.asked_before_s
    if margin_s is None or request.plan.batch is None or request.elements:
        return
    slowest_s = max((_slowest_checkpoint_s(paths) for paths, _ in _same_work(record_of(request))), default=0.0)
    if checkpoints.is_too_late(slowest_s, margin_s):
        yield Problem(
            "checkpoint-after-limit",
            f"checkpoints of earlier runs took up to {slowest_s:.0f} s to reach the disk. The stop signal comes "
            f"{margin_s:.0f} s before the time limit, which leaves no time for two",
            f"Set time_limit_signal.margin_s in the cluster file to {checkpoints.margin_for(slowest_s)}, and give a "
            "--time-limit well above that",
        )


def _slowest_checkpoint_s(paths: RunPaths) -> float:
    from trainjob.observe.report.report import slowest_checkpoint_s  # most plans find no run of the same work

    with contextlib.suppress(UserError, OSError):  # an unreadable folder is skipped
        if paths.metrics.stat().st_size <= _MOST_METRICS_BYTES:
            return slowest_checkpoint_s(paths)
    return 0.0


def _same_work(record: JobRecord) -> Iterator[tuple[RunPaths, JobRecord]]:
    """Yield the newest complete runs of the same work, with any number of instances and any length, newest first."""
    # Reading a record for one of its texts is much cheaper than parsing it.
    searched = record.train.task if record.train is not None else max(record.command or [""], key=len)
    wanted, read = _work(record), 0
    for paths in index.newest(_MOST_RUNS):
        is_complete = attempts.state(paths) == states.COMPLETED
        earlier = jobs.read_if_it_has(paths.job, searched) if is_complete else None
        if earlier is not None and _work(earlier) == wanted:
            yield paths, earlier
            read += 1
        if read == _MOST_READ:
            return


def _work(record: JobRecord) -> dict[str, Any]:
    """Return what runs have in common if they do the same work, perhaps on more instances or for longer."""
    common = {
        "cluster": record.plan.cluster,
        "device": record.plan.topology.device,
        "environment": record.environment,
        "command": record.command,
    }
    train = record.train
    if train is None:
        return common
    return {
        **common,
        # A single instance may have another engine, because it reduces nothing and computes the same.
        "engine": "ddp" if train.engine == "single" else train.engine,
        **{
            name: getattr(train, name)
            for name in (
                *("task", "task_options", "entry", "data", "micro_batch", "precision", "optimizer"),
                *("device_iterations", "ipus_per_replica", "workers", "trace"),
            )
        },
    }


def _extent(record: JobRecord) -> tuple[object, ...]:
    """Return on how much a run works, and for how long."""
    topology, train = record.plan.topology, record.train
    length = () if train is None else (train.accumulation, train.epochs, train.updates, train.samples)
    return (topology.instances, topology.host_count, topology.replicas, *length)
