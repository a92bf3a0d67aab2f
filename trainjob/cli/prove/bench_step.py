"""trainjob bench step: what makes single updates faster."""

from __future__ import annotations

from pathlib import Path

import click

from trainjob.cli.command import command, json_option
from trainjob.cli.job_flags import takes_a_job
from trainjob.contract import settings
from trainjob.records import measures
from trainjob.requests.options import JobOptions
from trainjob.watch import show

output_option = click.option(
    "--output", "-o", type=click.Path(path_type=Path), help="Also write the figures to this file, as JSON."
)
_VARIATIONS = list(measures.STEP_VARIATIONS)[1:]


@command(
    "trainjob bench step --task my_task:MyTask",
    "trainjob bench step --instances 2 --engine fsdp --task tiny-gpt --rounds 31",
)
@takes_a_job(
    without=("epochs", "updates", *measures.PLAIN_STEP),
    groups_without=(settings.RECORDS, settings.SLURM, settings.IPU),
)
@click.option("--variation", multiple=True, help=f"One of {', '.join(_VARIATIONS)}. May be repeated. Default: all.")
@click.option("--rounds", type=click.IntRange(min=6), default=15, help="Rounds of each variation, plain in each.")
@click.option("--seconds", type=click.FloatRange(min=0.01), default=0.3, help="Length of either half of a round.")
@output_option
@json_option
def step(
    flags: JobOptions, variation: tuple[str, ...], rounds: int, seconds: float, output: Path | None, as_json: bool
) -> None:
    """Measure what --compile, channels-last and other implementations of the optimizer gain over a plain update.

    Samples lie in memory, and each variation takes turns with the plain update. Where noise may hide a difference, it
    says so in place of a gain.
    """
    from trainjob.bench import plots
    from trainjob.bench.step import Step, steps
    from trainjob.requests.prepared import prepare
    from trainjob.requests.workbench import refuse_unfit, workbench

    def line(row: Step) -> tuple[str, ...]:
        if row.gain is None:
            return (row.name, "", "", "", "", row.verdict)
        interval = f"{row.gain_low:.3f} to {row.gain_high:.3f}"
        times = (f"{1000 * (one or 0.0):.3f}" for one in (row.seconds, row.plain_seconds))
        return (row.name, *times, f"{row.gain:.3f}", interval, row.verdict)

    for name in variation:
        if name not in _VARIATIONS:
            raise click.BadParameter(f"--variation {name}: expected one of {', '.join(_VARIATIONS)}")
    if output is not None:
        plots.check_folder("--output", output)
    prepared = prepare(flags)
    refuse_unfit(prepared)
    with workbench(prepared, show.progress) as bench:
        rows = steps(bench, variation, rounds=rounds, round_s=seconds)
    head = ("VARIATION", "MS/UPDATE", "PLAIN", "GAIN", "95 % INTERVAL", "")
    show.figures(rows, head, line, output, in_json=as_json)
