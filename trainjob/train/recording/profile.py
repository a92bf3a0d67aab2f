"""Profiles some updates of this rank with torch.profiler: a trace, and a summary that `trainjob report` shows."""

from __future__ import annotations

from typing import Any, Iterable, List, Optional, Tuple

import torch
from torch.autograd.profiler_util import FunctionEvent

from trainjob.contract import clock, forms
from trainjob.contract.paths import RunPaths
from trainjob.records import profile as contract
from trainjob.records.job import TrainSettings
from trainjob.records.profile import Operator, RankProfile

_TOP = 10
_COLLECTIVES = ("nccl", "gloo:")
# What computes on a CPU: torch's operators, and compiled code. All else is bookkeeping around them, or waits.
_COMPUTES = ("aten::", "graph_", "CompiledFunction", "Torch-Compiled Region")

Span = Tuple[float, float]  # microseconds


def profiler(
    paths: RunPaths, settings: TrainSettings, rank: int, attempt: int, device: torch.device
) -> Optional[Profiler]:
    """Return the profiler of this rank; None if the job does not ask for one."""
    if settings.profile is None or rank not in forms.parse_ranks(settings.profile_ranks):
        return None
    return Profiler(paths, forms.parse_updates(settings.profile), rank, attempt, device)


class Profiler:
    """Records the updates of one range, and writes them down when the last one is made."""

    def __init__(
        self, paths: RunPaths, updates: forms.UpdateRange, rank: int, attempt: int, device: torch.device
    ) -> None:
        self._paths = paths
        self._updates = updates
        self._rank = rank
        self._attempt = attempt
        self._device = device
        self._recording: Any = None
        self._first = 0
        self._last = 0
        self._start = 0.0

    def before(self, update: int) -> None:
        """Begin to record if `update`, which is made next, is the first of the range; a resumed run may begin later."""
        if self._recording is None and self._updates.first <= update <= self._updates.last:
            kinds = torch.profiler.ProfilerActivity
            activities = [kinds.CPU, kinds.CUDA] if self._device.type == "cuda" else [kinds.CPU]
            self._synchronise()
            self._recording = torch.profiler.profile(activities=activities)
            self._first, self._start = update, clock.monotonic()
            self._recording.start()

    def after(self, update: int) -> None:
        """Note that `update` is made; after the last of the range, write down what was recorded."""
        self._last = update
        if update >= self._updates.last:
            self.close()

    def close(self) -> None:
        """Write down what was recorded, if anything is."""
        if self._recording is None:
            return
        self._synchronise()
        seconds = clock.monotonic() - self._start
        recording, self._recording = self._recording, None
        recording.stop()
        trace = contract.trace_of(self._paths, self._rank)
        trace.parent.mkdir(exist_ok=True)
        recording.export_chrome_trace(str(trace))
        on_gpu = self._device.type == "cuda"
        names = ("self_device_time_total", "self_cuda_time_total") if on_gpu else ("self_cpu_time_total",)
        rows = [(next(getattr(row, n) for n in names if hasattr(row, n)), row) for row in recording.key_averages()]
        rows.sort(key=lambda pair: -pair[0])
        communication_s, exposed_s = _communication(recording.events(), on_gpu)
        profile = RankProfile(
            rank=self._rank,
            attempt=self._attempt,
            device=str(self._device),
            first=self._first,
            last=self._last,
            seconds=seconds,
            operators=[Operator(row.key, row.count, micro / 1e6) for micro, row in rows[:_TOP] if micro > 0],
            communication_s=communication_s,
            exposed_s=exposed_s,
        )
        contract.write(self._paths, profile)

    def _synchronise(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _communication(events: Iterable[FunctionEvent], on_gpu: bool) -> Tuple[Optional[float], Optional[float]]:
    """Return the seconds in which collectives ran, and those of them in which nothing was computed meanwhile."""
    collectives: List[Span] = []
    computing: List[Span] = []
    for event in events:
        if (event.device_type.name == "CUDA") != on_gpu:
            continue
        span = (event.time_range.start, event.time_range.end)
        if event.name.lower().startswith(_COLLECTIVES):
            collectives.append(span)
        elif on_gpu or event.name.startswith(_COMPUTES):
            computing.append(span)
    if not collectives:
        return None, None
    total = length(collectives)
    # What only one of both covers is what is left of their union.
    exposed = length([*collectives, *computing]) - length(computing)
    return total / 1e6, min(total, max(0.0, exposed)) / 1e6  # differences of long sums round


def length(spans: Iterable[Span]) -> float:
    """Return how much time some spans cover together."""
    covered, end = 0.0, float("-inf")
    for start, stop in sorted(spans):
        covered += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return covered
