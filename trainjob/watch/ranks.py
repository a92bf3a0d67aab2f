"""Rows of the live view about a run's ranks: the use of each, and its time for its own samples of an update."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from trainjob.backends import mirror
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.observe.report.ranks import own_seconds
from trainjob.records import job as jobs
from trainjob.records import usage as usage_records
from trainjob.records.files import DamagedError
from trainjob.records.job import ContractError
from trainjob.records.measures import RankTimes, rank_times
from trainjob.records.usage import UsageRecord
from trainjob.watch import show

_MOST_RANKS = 8
# Samples are taken every 30 s; a login node need not be asked for them at every look.
_FETCHED_EVERY_S = 30.0


class Ranks:
    """The newest samples of the first ranks of one run: no line is read twice."""

    def __init__(self, folder: str) -> None:
        self._paths = RunPaths(Path(folder))
        self._fetched_at: float | None = None
        self._instances = 0
        with contextlib.suppress(ContractError, DamagedError, OSError):
            self._instances = jobs.read(self._paths.job).plan.topology.instances
        ranks = range(min(self._instances, _MOST_RANKS))
        self._usage_lines = {rank: usage_records.lines(self._paths, rank) for rank in ranks}
        self._times_lines = {rank: rank_times(self._paths, rank) for rank in ranks}
        self._usage: dict[int, UsageRecord] = {}
        self._times: dict[int, RankTimes] = {}

    def until_now(self) -> list[tuple[str, str]]:
        """Return a row for each rank that has recorded anything in the newest attempt: its name, and its use."""
        if self._fetched_at is None or time.monotonic() - self._fetched_at >= _FETCHED_EVERY_S:
            with contextlib.suppress(UserError, ContractError, DamagedError, OSError):
                mirror.refresh_usage(self._paths)
            self._fetched_at = time.monotonic()
        self._usage.update((rank, one) for rank, file in self._usage_lines.items() for one in file.new())
        self._times.update((rank, line) for rank, file in self._times_lines.items() for line in file.new())
        usage, times = self._usage, self._times
        attempt = max([*(one.attempt for one in usage.values()), *(line.attempt for line in times.values())], default=0)
        own_s = {
            rank: own_seconds(line.seconds) / line.updates
            for rank, line in times.items()
            if line.attempt == attempt and line.updates > 0
        }
        slowest = max(own_s, key=own_s.__getitem__) if len(own_s) > 1 else None
        rows = []
        for rank in self._usage_lines:
            words = list(_use(usage[rank])) if rank in usage and usage[rank].attempt == attempt else []
            if rank in own_s:
                mark = ", the slowest" if rank == slowest else ""
                words.append(f"{1000 * own_s[rank]:.3g} ms of data and compute an update{mark}")
            rows += [(f"rank {rank}", " · ".join(words))] if words else []
        further = self._instances - len(self._usage_lines)
        return [*rows, *([("", f"… and {further} more ranks: trainjob usage")] if rows and further else [])]


def _use(one: UsageRecord) -> Iterator[str]:
    yield one.host
    if one.cpu_cores is not None:
        yield f"{one.cpu_cores:.2f} of {one.cpus} CPUs"
    yield show.size(one.memory_bytes)
    for device in one.devices:
        use = "" if device.use is None else f" {device.use:.0%}"
        memory = "" if device.memory_bytes is None else f" {show.size(device.memory_bytes)}"
        yield f"{device.device}{use}{memory}"
