"""trainjob predict: the time and memory that a job should take, before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from trainjob.cli.command import command, json_option
from trainjob.cli.job_flags import takes_a_job
from trainjob.planning.words import quantity
from trainjob.requests.options import JobOptions
from trainjob.watch import show

if TYPE_CHECKING:
    from trainjob.records.prediction import Prediction, Range


@command(
    "trainjob predict --cluster local --epochs 20 --at 1 --at 2 --at 4",
    "trainjob predict --cluster slurm-gpu --instances 16 --time-limit 04:00:00 --json",
)
@takes_a_job()
@click.option("--at", multiple=True, type=click.IntRange(min=1), help="Number of instances. May be repeated.")
@click.option(
    "--measure", is_flag=True, help="Train for a few seconds on this machine instead of reading earlier runs."
)
@json_option
def predict(flags: JobOptions, at: tuple[int, ...], measure: bool, as_json: bool) -> None:
    """Predict time, memory, checkpoint size and attempts of a job, with 90 % intervals.

    From earlier runs of the same task on the same cluster; on this machine also from a few seconds of training.
    """
    from trainjob.records.typed import to_json
    from trainjob.requests.prepared import prepare
    from trainjob.requests.profiling import predictions

    prepared = prepare(flags)
    jobs = [prepared.changed(instances=number) for number in at] if at else [prepared]
    predicted = predictions(prepared, jobs, show.progress, measure=measure)
    if as_json:
        show.as_json([to_json(one) for one in predicted])
        return
    head = ["INSTANCES", "UPDATES", "MS/UPDATE", "S/EPOCH", "RUN", "MEMORY/RANK", "CHECKPOINT"]
    has_limit = any(one.attempts for one in predicted)
    show.table([*head, *(["ATTEMPTS"] if has_limit else [])], (_row(one, has_limit=has_limit) for one in predicted))
    click.echo(f"\nmedian (90 % interval), from {predicted[0].basis}")
    for one in predicted:
        click.echo(f"\n{quantity(one.instances, 'instance')}:")
        for line in one.model:
            click.echo(f"  {line}")


def rows(one: Prediction) -> list[tuple[str, str]]:
    """Return one prediction in words: what is predicted, and its median with the 90 % interval."""
    pairs = [("run", duration(one.run_s)), ("update", f"{_figures(one.update_s, 1000.0)} ms")]
    if one.epoch_s is not None:
        pairs.append(("epoch", duration(one.epoch_s)))
    if one.memory_bytes is not None:
        pairs.append(("memory", f"{show.size(int(one.memory_bytes.median))} a rank"))
    if one.checkpoint_bytes is not None:
        pairs.append(("checkpoint", show.size(int(one.checkpoint_bytes.median))))
    return [*pairs, *([("attempts", _attempts(one.attempts))] if one.attempts else [])]


def _row(one: Prediction, *, has_limit: bool) -> list[str]:
    cells = [
        *(str(one.instances), str(one.updates)),
        _figures(one.update_s, 1000.0),
        _figures(one.epoch_s, 1.0),
        duration(one.run_s),
        "-" if one.memory_bytes is None else show.size(int(one.memory_bytes.median)),
        "-" if one.checkpoint_bytes is None else show.size(int(one.checkpoint_bytes.median)),
    ]
    return [*cells, _attempts(one.attempts)] if has_limit else cells


def _figures(figure: Range | None, factor: float) -> str:
    if figure is None:
        return "-"
    return "{:.3g} ({:.3g} to {:.3g})".format(*(factor * value for value in (figure.median, figure.low, figure.high)))


def _attempts(figure: Range | None) -> str:
    if figure is None:
        return "-"
    few, many = int(figure.low), int(figure.high)
    return str(few) if few == many else f"{int(figure.median)} ({few} to {many})"


def duration(figure: Range) -> str:
    """Return a duration with its interval: 12.3 s (10.1 s to 15.0 s)."""
    return f"{show.seconds(figure.median)} ({show.seconds(figure.low)} to {show.seconds(figure.high)})"
