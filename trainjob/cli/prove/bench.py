"""trainjob bench: loader, collective, scaling, growth, step."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli.app import examples, new
from trainjob.cli.job_flags import takes_a_job
from trainjob.cli.prove import bench_pods
from trainjob.cli.prove.bench_step import STEP_EXAMPLES, Output, step
from trainjob.contract import setting_row, settings
from trainjob.requests.options import JobOptions
from trainjob.watch import show

if TYPE_CHECKING:
    from trainjob.bench.collective import Reduction
    from trainjob.bench.scaling import Scale
    from trainjob.requests.workbench import Workbench

app = new(
    no_args_is_help=True,
    help="Measure data loading, all-reduce, single updates, and how a job scales and grows, on this machine.",
)

# What a bench decides itself, or what only a run that is submitted has.
_NO_RUN = functools.partial(
    takes_a_job, without=("epochs", "updates"), groups_without=(setting_row.RECORDS, setting_row.SLURM)
)
_ONLY_RANKS = functools.partial(
    takes_a_job, without=(name for name in settings.names(settings.JobSettings) if name not in ("instances", "env"))
)
_ONLY_DATA = functools.partial(
    takes_a_job,
    without=("epochs", "updates", "workers", "engine", "bucket_mb"),
    groups_without=(setting_row.TRAINING, setting_row.RECORDS, setting_row.SLURM),
)
_TOY_NET = functools.partial(
    takes_a_job,
    without=("task", "epochs", "updates", "instances", "replicas", "samples", "data"),
    groups_without=(setting_row.RECORDS, setting_row.SLURM, setting_row.IPU),
)
Plot = Annotated[Path | None, typer.Option("--plot", help="Plot the figures into this file (.svg, .png).")]
Appetite = Annotated[
    float | None,
    typer.Option(help="Samples/s that one instance can train on; the verdict then says whether loading keeps up."),
]
Numbers = Annotated[list[int] | None, typer.Option("--at", help="Number of instances. May be repeated.")]


@app.command(
    epilog=examples(
        "trainjob bench scaling --task my_task:MyTask --at 1 --at 2 --at 4",
        "trainjob bench scaling --lessons --cluster pod16",
    )
)
@_NO_RUN
def scaling(
    flags: JobOptions,
    at: Numbers = None,
    lessons: Annotated[
        bool, typer.Option("--lessons", help="Rehearse the four steps of the IPU lessons and give seconds per epoch.")
    ] = False,
    measured_epochs: Annotated[
        int, typer.Option("--measured-epochs", min=1, help="Epochs measured, after one for warming up.")
    ] = 3,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Runs of each number of instances, in turns.")] = 3,
    plot: Plot = None,
    output: Output = None,
    as_json: show.AsJson = False,
) -> None:
    """Train with several numbers of instances; show time per epoch, efficiency, and time spent waiting for data."""
    from trainjob.bench.scaling import amdahl, law_in_words
    from trainjob.bench.scaling import scaling as measured

    if lessons:
        bench_pods.print_lessons(flags, output, as_json=as_json)
        return
    _check_targets(plot, output)
    with _bench(flags) as bench:
        rows = measured(bench, at or [1, 2], epochs=measured_epochs, repeats=repeats)
    show.figures(rows, _SCALING_HEAD, _scaling_line, output, in_json=as_json)
    for row in rows if not as_json else ():
        if row.noise is not None:
            typer.echo(f"\n{row.instances} instances: noise, measured once more: {row.noise}")
    law = amdahl(rows)
    if not as_json and len(rows) > 1:
        typer.echo(f"\n{law_in_words(law, rows)}")
    if plot is not None:
        from trainjob.bench.plots import draw_scaling

        draw_scaling(rows, law, plot)


_SCALING_HEAD = (
    "INSTANCES",
    "S/EPOCH",
    "MIN",
    "MAX",
    "SAMPLES/S",
    "90 % INTERVAL",
    "EFFICIENCY",
    "DATA",
    "COMMUNICATION",
)


def _scaling_line(row: Scale) -> tuple[str, ...]:
    return (
        str(row.instances),
        f"{row.seconds_per_epoch:.3f}",
        f"{row.fastest_epoch_s:.3f}",
        f"{row.slowest_epoch_s:.3f}",
        f"{row.samples_per_s:,.0f}",
        f"{row.samples_per_s_low:,.0f} to {row.samples_per_s_high:,.0f}",
        f"{100 * row.efficiency:.0f} %",
        f"{100 * row.data_share:.1f} %",
        f"{100 * row.communication_share:.1f} %",
    )


@app.command(
    epilog=examples(
        "trainjob bench collective --instances 4 --bucket-mb 1,5,25",
        "trainjob bench collective --megabytes 16 --plot all-reduce.svg",
    )
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
    as_json: show.AsJson = False,
) -> None:
    """Measure all-reduce by size: one call per tensor, one flat buffer, and buckets."""
    from trainjob.bench.collective import collective as measured

    def line(row: Reduction) -> tuple[str, ...]:
        return (show.size(row.bytes), _way(row), f"{1000 * row.seconds:.3f}", f"{show.size(int(row.bytes_per_s))}/s")

    sizes = megabytes or [0.004, 0.064, 1.0, 16.0, 64.0]
    instances = flags.values.get("instances", 2)
    _check_targets(plot, output)
    with _bench(flags) as bench:
        rows = measured(bench, instances=instances, megabytes=sizes, tensors=tensors, buckets_mb=_sizes(bucket_mb))
    show.figures(rows, ("SIZE", "WAY", "MS", "BANDWIDTH"), line, output, in_json=as_json)
    if plot is not None:
        from trainjob.bench.plots import draw_collective

        draw_collective(rows, plot)


def _way(row: Reduction) -> str:
    return row.way if row.bucket_mb is None else f"{row.way}, {row.bucket_mb:g} MB"


def _sizes(text: str) -> list[float]:
    try:
        sizes = [float(part) for part in text.split(",")]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) <= 0:
        raise typer.BadParameter(f"--bucket-mb {text}: expected sizes in MB, as in 1,5,25")
    return sizes


@app.command(
    epilog=examples(
        "trainjob bench loader --task my_task:MyTask --at 2 --loaders 0 --loaders 4",
        "trainjob bench loader --measure-appetite",
    )
)
@_ONLY_DATA
def loader(
    flags: JobOptions,
    at: Numbers = None,
    loaders: Annotated[
        list[int] | None, typer.Option("--loaders", help="Loader workers of each instance. May be repeated.")
    ] = None,
    appetite: Appetite = None,
    measure_appetite: Annotated[
        bool, typer.Option("--measure-appetite", help="Measure the appetite: train one instance on samples in memory.")
    ] = False,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="Length of each measurement in seconds.")] = 2.0,
    plot: Plot = None,
    output: Output = None,
    as_json: show.AsJson = False,
) -> None:
    """Measure how fast a job's data loads without training, by instances and loader workers."""
    from trainjob.bench.loader import Loading, loading, measured_appetite, verdict
    from trainjob.kinds.lookup import find

    def line(row: Loading) -> tuple[str, ...]:
        return (str(row.instances), str(row.workers), f"{row.samples_per_s:,.0f}")

    cluster = find(flags.cluster).cluster
    if cluster.hosts_are_named and cluster.ranks_by == "poprun":
        bench_pods.print_loading(flags, loaders or [0], seconds, output, as_json=as_json)
        return
    _check_targets(plot, output)
    with _bench(flags) as bench:
        rows = loading(bench, at or [1, 2], loaders or [0], seconds=seconds)
        if appetite is None and measure_appetite:
            appetite = measured_appetite(bench, seconds=seconds)
    show.figures(rows, ("INSTANCES", "WORKERS", "SAMPLES/S"), line, output, in_json=as_json)
    if appetite is not None and not as_json:
        how = ", measured here with samples in memory" if measure_appetite else ""
        typer.echo(f"\none instance takes {appetite:,.0f} samples/s{how}\n{verdict(rows, appetite)}")
    if plot is not None:
        from trainjob.bench.plots import draw_loader

        draw_loader(rows, appetite, plot)


@app.command(
    epilog=examples(
        "trainjob bench growth",
        "trainjob bench growth --width 100 --width 400 --size 4096 --at 1 --plot growth.svg",
    )
)
@_TOY_NET
def growth(
    flags: JobOptions,
    width: Annotated[
        list[int] | None, typer.Option("--width", min=1, help="Width of the hidden layers. May be repeated.")
    ] = None,
    size: Annotated[
        list[int] | None, typer.Option("--size", min=1, help="Number of training samples. May be repeated.")
    ] = None,
    at: Numbers = None,
    measured_epochs: Annotated[
        int, typer.Option("--measured-epochs", min=1, help="Epochs measured, after one for warming up.")
    ] = 3,
    plot: Plot = None,
    output: Output = None,
    as_json: show.AsJson = False,
) -> None:
    """Train a small net with growing width, then with growing data, and show time per epoch."""
    from trainjob.bench.growth import Growth
    from trainjob.bench.growth import growth as measured

    def line(row: Growth) -> tuple[str, ...]:
        figures = (
            f"{row.seconds_per_epoch:.3f}",
            f"{row.samples_per_s:,.0f}",
            f"{100 * row.communication_share:.1f} %",
        )
        return (str(row.width), f"{row.parameters:,}", f"{row.samples:,}", str(row.instances), *figures)

    of_widths, of_sizes = width or [50, 100, 200, 400, 800], size or [4096, 8192, 16384, 32768]
    _check_targets(plot, output)
    with _bench(flags) as bench:
        rows = list(measured(bench, of_widths, of_sizes, at or [1, 2], epochs=measured_epochs))
    head = ("WIDTH", "PARAMETERS", "SAMPLES", "INSTANCES", "S/EPOCH", "SAMPLES/S", "COMMUNICATION")
    show.figures(rows, head, line, output, in_json=as_json)
    if plot is not None:
        from trainjob.bench.plots import draw_growth

        draw_growth(rows, plot)


app.command(epilog=STEP_EXAMPLES)(step)


def _check_targets(plot: Path | None, output: Path | None) -> None:
    """Refuse what can't be written before anything is measured."""
    from trainjob.bench import plots

    if plot is not None:
        plots.check(plot)
    if output is not None:
        plots.check_folder("--output", output)


def _bench(flags: JobOptions) -> AbstractContextManager[Workbench]:
    from trainjob.requests.prepared import prepare
    from trainjob.requests.workbench import refuse_unfit, workbench

    prepared = prepare(flags)
    refuse_unfit(prepared)
    return workbench(prepared, show.progress)
