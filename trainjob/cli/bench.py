"""trainjob bench: loader, collective, scaling, growth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainjob.cli import show
from trainjob.cli.app import new
from trainjob.cli.job_flags import JobFlags, takes_a_job

if TYPE_CHECKING:
    from trainjob.bench.lessons import Step
    from trainjob.bench.pod import PodLoading
    from trainjob.bench.scaling import Scale

app = new(
    no_args_is_help=True, help="Measure the loader, the collectives, and how a job scales and grows, on this machine."
)

Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write the figures as JSON, too.")]
Numbers = Annotated[list[int] | None, typer.Option("--at", help="Number of instances; may be repeated.")]


@app.command()
@takes_a_job
def scaling(
    flags: JobFlags,
    at: Numbers = None,
    lessons: Annotated[
        bool, typer.Option("--lessons", help="The IPU lessons' four steps, rehearsed: seconds an epoch.")
    ] = False,
    measured_epochs: Annotated[int, typer.Option("--measured-epochs", min=1, help="After one that warms up.")] = 3,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw it into this file (.svg, .png).")] = None,
    output: Output = None,
    as_json: show.AsJson = False,
) -> None:
    """Train on several numbers of instances: time an epoch, efficiency, share of time waiting for data."""
    from trainjob.bench.scaling import scaling as measured
    from trainjob.cli.workbench import workbench

    if lessons:
        _print_lessons(flags, output, as_json=as_json)
        return
    rows = list(measured(workbench(flags), at or [1, 2], epochs=measured_epochs))
    _print(rows, _SCALING_HEAD, _scaling_line, output, as_json=as_json)
    if plot is not None:
        from trainjob.bench.plots import draw_scaling

        draw_scaling(rows, plot)


_SCALING_HEAD = ("INSTANCES", "S/EPOCH", "MIN", "MAX", "SAMPLES/S", "EFFICIENCY", "DATA", "COMMUNICATION")


def _scaling_line(row: Scale) -> tuple[str, ...]:
    return (
        str(row.instances),
        f"{row.seconds_per_epoch:.3f}",
        f"{row.fastest_epoch_s:.3f}",
        f"{row.slowest_epoch_s:.3f}",
        f"{row.samples_per_s:,.0f}",
        f"{100 * row.efficiency:.0f} %",
        f"{100 * row.data_share:.1f} %",
        f"{100 * row.communication_share:.1f} %",
    )


@app.command()
@takes_a_job
def collective(
    flags: JobFlags,
    megabytes: Annotated[list[float] | None, typer.Option("--megabytes", help="A size; may be repeated.")] = None,
    tensors: Annotated[int, typer.Option("--tensors", min=1, help="Tensors a size is divided into.")] = 32,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw it into this file (.svg, .png).")] = None,
    output: Output = None,
    as_json: show.AsJson = False,
) -> None:
    """Measure all-reduce by size: tensor by tensor, in one flat buffer, in buckets."""
    from trainjob.bench.collective import Reduction
    from trainjob.bench.collective import collective as measured
    from trainjob.cli.workbench import workbench

    def line(row: Reduction) -> tuple[str, ...]:
        return (show.size(row.bytes), row.way, f"{1000 * row.seconds:.3f}", f"{show.size(int(row.bytes_per_s))}/s")

    sizes = megabytes or [0.004, 0.064, 1.0, 16.0, 64.0]
    instances = flags.values.get("instances", 2)
    rows = measured(workbench(flags), instances=instances, megabytes=sizes, tensors=tensors)
    _print(rows, ("SIZE", "WAY", "MS", "BANDWIDTH"), line, output, as_json=as_json)
    if plot is not None:
        from trainjob.bench.plots import draw_collective

        draw_collective(rows, plot)


@app.command()
@takes_a_job
def loader(
    flags: JobFlags,
    at: Numbers = None,
    loaders: Annotated[list[int] | None, typer.Option("--loaders", help="Loader workers; may be repeated.")] = None,
    appetite: Annotated[
        float | None, typer.Option("--appetite", help="Samples/s one instance's devices take; then it says what binds.")
    ] = None,
    measure_appetite: Annotated[
        bool, typer.Option("--measure-appetite", help="Find that out: train one instance on samples in memory.")
    ] = False,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="Of each measurement.")] = 2.0,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw it into this file (.svg, .png).")] = None,
    output: Output = None,
    as_json: show.AsJson = False,
) -> None:
    """Measure how fast a job's data comes when nobody trains, by instances and loader workers."""
    from trainjob.bench.loader import Loading, loading, measured_appetite, verdict
    from trainjob.cli.workbench import workbench

    def line(row: Loading) -> tuple[str, ...]:
        return (str(row.instances), str(row.workers), f"{row.samples_per_s:,.0f}")

    if _is_a_pod(flags):
        _print_pod_loading(flags, loaders or [0], seconds, output, as_json=as_json)
        return
    bench = workbench(flags)
    rows = loading(bench, at or [1, 2], loaders or [0], seconds=seconds)
    if appetite is None and measure_appetite:
        appetite = measured_appetite(bench, seconds=seconds)
    _print(rows, ("INSTANCES", "WORKERS", "SAMPLES/S"), line, output, as_json=as_json)
    if appetite is not None and not as_json:
        how = ", measured here with samples in memory" if measure_appetite else ""
        typer.echo(f"\none instance takes {appetite:,.0f} samples/s{how}\n{verdict(rows, appetite)}")
    if plot is not None:
        from trainjob.bench.plots import draw_loader

        draw_loader(rows, appetite, plot)


@app.command()
@takes_a_job
def growth(
    flags: JobFlags,
    width: Annotated[list[int] | None, typer.Option("--width", min=1, help="A width; may be repeated.")] = None,
    size: Annotated[list[int] | None, typer.Option("--size", min=1, help="Samples; may be repeated.")] = None,
    at: Numbers = None,
    measured_epochs: Annotated[int, typer.Option("--measured-epochs", min=1, help="After one that warms up.")] = 3,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw it into this file (.svg, .png).")] = None,
    output: Output = None,
    as_json: show.AsJson = False,
) -> None:
    """Train the tutorial's toy net while its model grows, then while its data grow."""
    from trainjob.bench.growth import Growth
    from trainjob.bench.growth import growth as measured
    from trainjob.cli.workbench import workbench

    def line(row: Growth) -> tuple[str, ...]:
        figures = (
            f"{row.seconds_per_epoch:.3f}",
            f"{row.samples_per_s:,.0f}",
            f"{100 * row.communication_share:.1f} %",
        )
        return (str(row.width), f"{row.parameters:,}", f"{row.samples:,}", str(row.instances), *figures)

    of_widths, of_sizes = width or [50, 100, 200, 400, 800], size or [4096, 8192, 16384, 32768]
    rows = list(measured(workbench(flags), of_widths, of_sizes, at or [1, 2], epochs=measured_epochs))
    head = ("WIDTH", "PARAMETERS", "SAMPLES", "INSTANCES", "S/EPOCH", "SAMPLES/S", "COMMUNICATION")
    _print(rows, head, line, output, as_json=as_json)
    if plot is not None:
        from trainjob.bench.plots import draw_growth

        draw_growth(rows, plot)


def _is_a_pod(flags: JobFlags) -> bool:
    from trainjob.cli.pod_workbench import is_a_pod

    return is_a_pod(flags)


def _print_pod_loading(
    flags: JobFlags, loaders: Sequence[int], seconds: float, output: Path | None, *, as_json: bool
) -> None:
    from trainjob.bench.pod import loading
    from trainjob.cli.pod_workbench import rehearsing

    rows = list(loading(rehearsing(flags), loaders, seconds=seconds))
    _print(rows, _POD_HEAD, _pod_line, output, as_json=as_json)


def _print_lessons(flags: JobFlags, output: Path | None, *, as_json: bool) -> None:
    from trainjob.bench.lessons import JOB, lessons
    from trainjob.cli.pod_workbench import rehearsing

    cluster = "pod16" if flags.cluster == "local" else flags.cluster
    rows = list(lessons(rehearsing(flags._replace(cluster=cluster, values={**JOB, **flags.values}))))
    _print(rows, _LESSONS_HEAD, _lessons_line, output, as_json=as_json)


_LESSONS_HEAD = ("INSTANCES", "REPLICAS", "WORKERS", "LOADER STEPS", "S/EPOCH", "SAMPLES/S", "DATA")


def _lessons_line(row: Step) -> tuple[str, ...]:
    counts = (row.instances, row.replicas, row.workers)
    figures = (
        f"{row.loader_steps:g}",
        f"{row.seconds_per_epoch:.3f}",
        f"{row.samples_per_s:,.0f}",
        f"{100 * row.data_share:.0f} %",
    )
    return (*(str(count) for count in counts), *figures)


_POD_HEAD = ("INSTANCES", "REPLICAS", "WORKERS", "LOADER STEPS", "SAMPLES/S", "S/EPOCH, LOADING")


def _pod_line(row: PodLoading) -> tuple[str, ...]:
    steps = "" if row.steps is None else str(row.steps)
    epoch = "" if row.seconds_per_epoch is None else f"{row.seconds_per_epoch:.3f}"
    return (str(row.instances), str(row.replicas), str(row.workers), steps, f"{row.samples_per_s:,.0f}", epoch)


def _print(rows: Sequence[Any], head: Sequence[str], line: Any, output: Path | None, *, as_json: bool) -> None:
    if output is not None:
        from trainjob.contract.files import write_json

        write_json(output, [row.as_json() for row in rows])
    if as_json:
        show.as_json([row.as_json() for row in rows])
    else:
        show.table(head, (line(row) for row in rows))
