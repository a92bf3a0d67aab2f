"""What `trainjob bench` measures of a pod: its job is rehearsed, on the CPUs of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from trainjob.requests.options import JobOptions
from trainjob.watch import show

if TYPE_CHECKING:
    from trainjob.bench.pod import PodLoading, Step
    from trainjob.requests.workbench import Workbench


def _pod_bench(flags: JobOptions) -> AbstractContextManager[Workbench]:
    from trainjob.requests.prepared import prepare
    from trainjob.requests.workbench import workbench

    return workbench(prepare(flags), show.progress)


def print_loading(
    flags: JobOptions, loaders: Sequence[int], seconds: float, output: Path | None, *, as_json: bool
) -> None:
    """Print how fast a rehearsed pod's job loads its data."""
    from trainjob.bench.pod import loading

    with _pod_bench(flags) as bench:
        rows = list(loading(bench, loaders, seconds=seconds))
    show.figures(rows, _POD_HEAD, _pod_line, output, in_json=as_json)


def print_lessons(flags: JobOptions, output: Path | None, *, as_json: bool) -> None:
    """Print the seconds per epoch of the IPU lessons' four steps, rehearsed."""
    from trainjob.bench.pod import JOB, lessons

    cluster = "pod16" if flags.cluster == "local" else flags.cluster
    with _pod_bench(flags._replace(cluster=cluster, values={**JOB, **flags.values})) as bench:
        rows = list(lessons(bench))
    show.figures(rows, _LESSONS_HEAD, _lessons_line, output, in_json=as_json)


_LESSONS_HEAD = ("INSTANCES", "REPLICAS", "WORKERS", "LOADER STEPS", "S/EPOCH", "SAMPLES/S", "DATA", "LESSON'S S/EPOCH")


def _lessons_line(row: Step) -> tuple[str, ...]:
    counts = (row.instances, row.replicas, row.workers)
    figures = (
        f"{row.loader_steps:g}",
        f"{row.seconds_per_epoch:.3f}",
        f"{row.samples_per_s:,.0f}",
        f"{100 * row.data_share:.0f} %",
        f"{row.lesson_seconds_per_epoch:g}",
    )
    return (*(str(count) for count in counts), *figures)


_POD_HEAD = ("INSTANCES", "REPLICAS", "WORKERS", "LOADER STEPS", "SAMPLES/S", "S/EPOCH, LOADING")


def _pod_line(row: PodLoading) -> tuple[str, ...]:
    steps = "" if row.steps is None else str(row.steps)
    epoch = "" if row.seconds_per_epoch is None else f"{row.seconds_per_epoch:.3f}"
    return (str(row.instances), str(row.replicas), str(row.workers), steps, f"{row.samples_per_s:,.0f}", epoch)
