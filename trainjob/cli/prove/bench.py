"""trainjob bench: loader, collective, scaling."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli.command import AsJson, command, commands, finite
from trainjob.cli.job_flags import takes_a_job
from trainjob.contract import settings
from trainjob.requests.options import JobOptions
from trainjob.watch import show

if TYPE_CHECKING:
    from trainjob.bench.parts import Loading, Reduction
    from trainjob.bench.pod import LessonStep, PodLoading
    from trainjob.bench.scaling import Scale
    from trainjob.requests.workbench import Workbench

# Settings that a bench decides itself, or that only a submitted run has, are left out.
_NO_RUN = takes_a_job(without=("epochs", "updates"), groups_without=(settings.RECORDS, settings.SLURM))
_ONLY_RANKS = takes_a_job(
    without=[name for name in settings.names(settings.JobSettings) if name not in ("instances", "env")]
)
_ONLY_DATA = takes_a_job(
    without=("epochs", "updates", "workers", "engine", "bucket_mb"),
    groups_without=(settings.TRAINING, settings.RECORDS, settings.SLURM),
)
At = Annotated[list[int] | None, typer.Option("--at", help="Number of instances. May be repeated.")]
Plot = Annotated[Path | None, typer.Option("--plot", help="Plot the figures into this file (.svg, .png).")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Also write the figures to this file, as JSON.")]


app = commands("Measure data loading, all-reduce, and how a job scales, on this machine.")


@command(
    app,
    "trainjob bench scaling --task my_task:MyTask --at 1 --at 2 --at 4",
    "trainjob bench scaling --lessons --cluster pod16",
)
@_NO_RUN
def scaling(
    flags: JobOptions,
    at: At = None,
    lessons: Annotated[
        bool, typer.Option("--lessons", help="Rehearse the four steps of the IPU lessons and give seconds per epoch.")
    ] = False,
    measured_epochs: Annotated[
        int, typer.Option("--measured-epochs", min=1, help="Epochs measured, after one for warming up.")
    ] = 3,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Runs of each number of instances, in turns.")] = 3,
    plot: Plot = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Train with several numbers of instances; show time per epoch, efficiency, and time spent waiting for data."""
    from trainjob.bench.scaling import scaling as measured

    def columns(row: Scale) -> dict[str, str]:
        return {
            "INSTANCES": str(row.instances),
            "S/EPOCH": f"{row.seconds_per_epoch:.3f}",
            "MIN": f"{row.fastest_epoch_s:.3f}",
            "MAX": f"{row.slowest_epoch_s:.3f}",
            "SAMPLES/S": f"{row.samples_per_s:,.0f}",
            "90 % INTERVAL": f"{row.samples_per_s_low:,.0f} to {row.samples_per_s_high:,.0f}",
            "EFFICIENCY": f"{100 * row.efficiency:.0f} %",
            "DATA": f"{100 * row.data_share:.1f} %",
            "COMMUNICATION": f"{100 * row.communication_share:.1f} %",
        }

    if lessons:
        from trainjob.bench.pod import JOB
        from trainjob.bench.pod import lessons as measured_lessons

        def columns_of_lesson(row: LessonStep) -> dict[str, str]:
            return {
                "INSTANCES": str(row.instances),
                "REPLICAS": str(row.replicas),
                "WORKERS": str(row.workers),
                "LOADER STEPS": f"{row.loader_steps:g}",
                "S/EPOCH": f"{row.seconds_per_epoch:.3f}",
                "SAMPLES/S": f"{row.samples_per_s:,.0f}",
                "DATA": f"{100 * row.data_share:.0f} %",
                "LESSON'S S/EPOCH": f"{row.lesson_seconds_per_epoch:g}",
            }

        cluster = "pod16" if flags.cluster in (None, "local") else flags.cluster
        with _bench(flags._replace(cluster=cluster, values={**JOB, **flags.values}), rehearses=True) as bench:
            steps = list(measured_lessons(bench))
        show.figures(steps, columns_of_lesson, output, in_json=as_json)
        return
    _check_targets(plot, output)
    with _bench(flags) as bench:
        rows = measured(bench, at or [1, 2], epochs=measured_epochs, repeats=repeats)
    show.figures(rows, columns, output, in_json=as_json)
    for row in rows if not as_json else ():
        if row.noise is not None:
            typer.echo(f"\n{row.instances} instances: noise, measured once more: {row.noise}")
    if plot is not None:
        from trainjob.bench.plots import draw_scaling

        draw_scaling(rows, plot)


@command(
    app,
    "trainjob bench collective --instances 4 --bucket-mb 1,5,25",
    "trainjob bench collective --megabytes 16 --plot all-reduce.svg",
)
@_ONLY_RANKS
def collective(
    flags: JobOptions,
    megabytes: Annotated[
        list[float] | None, typer.Option("--megabytes", help="Total size of the tensors in MB. May be repeated.")
    ] = None,
    tensors: Annotated[
        int, typer.Option("--tensors", min=1, help="Number of tensors that each size is divided into.")
    ] = 32,
    bucket_mb: Annotated[
        str, typer.Option("--bucket-mb", metavar="MB[,MB…]", help="Sizes of gradient buckets in MB: 1,5,25.")
    ] = "25",
    plot: Plot = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Measure all-reduce by size: one call per tensor, one flat buffer, and buckets."""
    from trainjob.bench.parts import collective as measured

    def columns(row: Reduction) -> dict[str, str]:
        way = row.way if row.bucket_mb is None else f"{row.way}, {row.bucket_mb:g} MB"
        bandwidth = f"{show.size(int(row.bytes_per_s))}/s"
        return {"SIZE": show.size(row.bytes), "WAY": way, "MS": f"{1000 * row.seconds:.3f}", "BANDWIDTH": bandwidth}

    buckets = bucket_sizes(bucket_mb)
    sizes = megabytes or [0.004, 0.064, 1.0, 16.0, 64.0]
    instances = flags.values.get("instances", 2)
    _check_targets(plot, output)
    with _bench(flags) as bench:
        rows = measured(bench, instances=instances, megabytes=sizes, tensors=tensors, buckets_mb=buckets)
    show.figures(rows, columns, output, in_json=as_json)
    if plot is not None:
        from trainjob.bench.plots import draw_collective

        draw_collective(rows, plot)


def bucket_sizes(text: str) -> list[float]:
    """Return the sizes that --bucket-mb names."""
    try:
        sizes = [float(part) for part in text.split(",")]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) <= 0:
        raise typer.BadParameter(f"--bucket-mb {text}: expected sizes in MB, as in 1,5,25")
    return sizes


@command(
    app,
    "trainjob bench loader --task my_task:MyTask --at 2 --loaders 0 --loaders 4",
    "trainjob bench loader --at 1 --at 2 --at 4 --plot loader.svg",
)
@_ONLY_DATA
def loader(
    flags: JobOptions,
    at: At = None,
    loaders: Annotated[
        list[int] | None, typer.Option("--loaders", help="Loader workers of each instance. May be repeated.")
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, callback=finite, help="Length of each measurement in seconds.")
    ] = 2.0,
    plot: Plot = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Measure how fast a job's data loads without training, by instances and loader workers."""
    from trainjob.bench import parts, pod
    from trainjob.kinds.lookup import find

    def columns(row: Loading) -> dict[str, str]:
        rate = f"{row.samples_per_s:,.0f}"
        return {"INSTANCES": str(row.instances), "WORKERS": str(row.workers), "SAMPLES/S": rate}

    def columns_of_pod(row: PodLoading) -> dict[str, str]:
        return {
            "INSTANCES": str(row.instances),
            "REPLICAS": str(row.replicas),
            "WORKERS": str(row.workers),
            "LOADER STEPS": "" if row.steps is None else str(row.steps),
            "SAMPLES/S": f"{row.samples_per_s:,.0f}",
            "S/EPOCH, LOADING": "" if row.seconds_per_epoch is None else f"{row.seconds_per_epoch:.3f}",
        }

    cluster = find(flags.cluster or "local").cluster
    if cluster.hosts_are_named and cluster.ranks_by == "poprun":
        with _bench(flags, rehearses=True) as bench:
            loaded = list(pod.loading(bench, loaders or [0], seconds=seconds))
        show.figures(loaded, columns_of_pod, output, in_json=as_json)
        return
    _check_targets(plot, output)
    with _bench(flags) as bench:
        rows = parts.loading(bench, at or [1, 2], loaders or [0], seconds=seconds)
    show.figures(rows, columns, output, in_json=as_json)
    if plot is not None:
        from trainjob.bench.plots import draw_loader

        draw_loader(rows, plot)


def _check_targets(plot: Path | None, output: Path | None) -> None:
    """Refuse what can't be written before anything is measured."""
    from trainjob.bench import plots

    if plot is not None:
        plots.check(plot)
    if output is not None:
        plots.check_folder("--output", output)


def _bench(flags: JobOptions, *, rehearses: bool = False) -> AbstractContextManager[Workbench]:
    from trainjob.requests.prepared import prepare
    from trainjob.requests.workbench import refuse_unfit, workbench

    prepared = prepare(flags.on_this_machine())
    if not rehearses:
        refuse_unfit(prepared)
    return workbench(prepared, show.progress)
