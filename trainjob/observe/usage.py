"""The CPUs, memory and devices that a run's ranks use: the samples of its newest attempt, summed up for each rank."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from trainjob.backends import mirror
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.records import attempts, usage
from trainjob.records import job as jobs
from trainjob.records.usage import UsageRecord

# With fewer ranks the median says nothing about what is usual.
_FEWEST_COMPARED = 3
_MUCH_LESS = 0.5


@dataclass(frozen=True)
class RankUsage:
    """One rank over its newest attempt: means over time, and the most at any one time."""

    rank: int
    host: str
    attempt: int
    samples: int
    seconds: float  # between the first sample and the last
    cpus: int
    cpu_cores: float | None
    most_cpu_cores: float | None
    memory_bytes: int
    most_memory_bytes: int
    memory_limit_bytes: int | None
    devices: list[str]
    device_use: float | None
    most_device_memory_bytes: int | None
    device_memory_total_bytes: int | None
    power_w: float | None
    uses_much_less: bool = False  # than the other ranks: it may hang, or wait for something that they have

    def as_json(self) -> dict[str, object]:
        """Return the rank for `--json`."""
        return asdict(self)


def of_run(paths: RunPaths) -> list[RankUsage]:
    """Return what each rank of a run uses; marked if it is much less of its devices, else of its CPUs, than is usual.

    Raises UserError where nothing was recorded.
    """
    mirror.refresh_usage(paths)
    ranks = range(jobs.read(paths.job).plan.topology.instances)
    listed = [_of_rank(samples) for rank in ranks if (samples := list(usage.lines(paths, rank).new()))]
    if not listed:
        raise UserError(
            f"run {paths.id} has recorded nothing of what its ranks use",
            f"It ended before its ranks began, or its folder lacks logs/usage-*.jsonl: trainjob status {paths.id}"
            if attempts.state(paths) in states.ENDED
            else "It has not begun, or it was submitted by an earlier version of trainjob",
        )
    if len(listed) < _FEWEST_COMPARED:
        return listed
    by_devices = all(one.device_use is not None for one in listed)
    used = [(one.device_use if by_devices else one.cpu_cores) or 0.0 for one in listed]
    usual = statistics.median(used)
    return [replace(one, uses_much_less=mine < usual * _MUCH_LESS) for one, mine in zip(listed, used, strict=True)]


def _of_rank(every: Sequence[UsageRecord]) -> RankUsage:
    samples = [one for one in every if one.attempt == every[-1].attempt]
    first, last = samples[0], samples[-1]
    devices = [device for one in samples for device in one.devices]
    cores = [one.cpu_cores for one in samples if one.cpu_cores is not None]
    elapsed_s = last.time - first.time
    # Intervals between samples are not all equally long.
    used_s = sum((after.time - before.time) * (after.cpu_cores or 0.0) for before, after in itertools.pairwise(samples))
    return RankUsage(
        rank=last.rank,
        host=last.host,
        attempt=last.attempt,
        samples=len(samples),
        seconds=elapsed_s,
        cpus=last.cpus,
        cpu_cores=(used_s / elapsed_s if elapsed_s > 0 else 0.0) if cores else None,
        most_cpu_cores=max(cores, default=None),
        memory_bytes=last.memory_bytes,
        most_memory_bytes=max(one.memory_bytes for one in samples),
        memory_limit_bytes=last.memory_limit_bytes,
        devices=list(dict.fromkeys(device.device for device in devices)),
        device_use=_mean([device.use for device in devices]),
        most_device_memory_bytes=max((one for device in devices if (one := device.memory_bytes)), default=None),
        device_memory_total_bytes=max((one for device in devices if (one := device.memory_total_bytes)), default=None),
        power_w=_mean([device.power_w for device in devices]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return statistics.fmean(numbers) if numbers else None
