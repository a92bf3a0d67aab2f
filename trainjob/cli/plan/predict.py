"""trainjob predict: what a job should take, before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli.app import examples, new
from trainjob.cli.job_flags import takes_a_job
from trainjob.contract.errors import UserError
from trainjob.requests.options import JobOptions
from trainjob.watch import show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainjob.observe.predictions.model import Observation
    from trainjob.records.prediction import Prediction, Range
    from trainjob.requests.prepared import Prepared

app = new()
Numbers = Annotated[list[int] | None, typer.Option("--at", help="Number of instances. May be repeated.", min=1)]


@app.command(
    epilog=examples(
        "trainjob predict --cluster local --epochs 20 --at 1 --at 2 --at 4",
        "trainjob predict --cluster slurm-gpu --instances 16 --time-limit 04:00:00 --json",
    )
)
@takes_a_job
def predict(
    flags: JobOptions,
    at: Numbers = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Train for a few seconds on this machine instead of reading earlier runs.")
    ] = False,
    as_json: show.AsJson = False,
) -> None:
    """Predict time, memory, checkpoint size and attempts of a job, with 90 % intervals.

    From earlier runs of the same task on the same cluster; on this machine also from a few seconds of training.
    """
    from trainjob.records.typed import to_json
    from trainjob.requests.prepared import prepare

    prepared = prepare(flags)
    jobs = [prepared.changed(instances=number) for number in at] if at else [prepared]
    predicted = predictions(prepared, jobs, measure=measure)
    if as_json:
        show.as_json([to_json(one) for one in predicted])
    else:
        _print(predicted)


def predictions(prepared: Prepared, jobs: Sequence[Prepared], *, measure: bool = False) -> list[Prediction]:
    """Return a prediction for each job, from earlier runs; where those can't tell, or to `measure`, by training."""
    from trainjob.observe.predictions import earlier

    predicted = [] if measure else _from(jobs, list(earlier.earlier(earlier.record_of(prepared.request))), None)
    if predicted:
        return predicted
    if not measure:
        show.progress("there is no earlier run of this job to predict from: training for a few seconds")
    return _from(jobs, _measured(prepared, jobs), "short runs on this machine")


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


def _from(jobs: Sequence[Prepared], observations: list[Observation], basis: str | None) -> list[Prediction]:
    """Return a prediction for each job; none at all where the observations can't tell of every one."""
    from trainjob.observe.predictions import earlier, model

    predicted = []
    for job in jobs:
        target = earlier.target_of(job.request)
        if target is None:
            raise UserError(
                "nobody can tell beforehand how long this job is",
                "give --task, and --samples or --updates; an array is predicted element by element",
            )
        one = model.predict(observations, target, basis or earlier.basis(observations))
        if one is None:
            return []
        predicted.append(one)
    return predicted


def _measured(prepared: Prepared, jobs: Sequence[Prepared]) -> list[Observation]:
    import os

    from trainjob.requests.workbench import refuse_unfit, workbench

    if not prepared.named_cluster.cluster.trains_here:
        name = prepared.named_cluster.name
        raise UserError(
            f"no earlier run of this job on cluster {name} tells how long it takes, and training here says nothing "
            "about that cluster",
            f"Submit a short run first: trainjob submit --cluster {name} --updates 100 …",
        )
    refuse_unfit(prepared)
    numbers = [job.request.plan.topology.instances for job in jobs]
    with workbench(prepared, show.progress) as bench:
        return list(bench.observe(numbers, os.cpu_count() or 1))


def _print(predicted: Sequence[Prediction]) -> None:
    first = predicted[0]
    head = ["INSTANCES", "UPDATES", "MS/UPDATE", "S/EPOCH", "RUN", "MEMORY/RANK", "CHECKPOINT"]
    has_limit = any(one.attempts for one in predicted)
    show.table([*head, *(["ATTEMPTS"] if has_limit else [])], (_row(one, has_limit=has_limit) for one in predicted))
    typer.echo(f"\nmedian (90 % interval), from {first.basis}")
    for one in predicted:
        typer.echo(f"\n{one.instances} instance{'' if one.instances == 1 else 's'}:")
        for line in one.model:
            typer.echo(f"  {line}")


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
