"""trainjob plan: the arithmetic and the picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainjob.cli.app import examples, new
from trainjob.cli.job_flags import takes_a_job
from trainjob.requests.options import JobOptions
from trainjob.watch import show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainjob.contract.errors import Problem
    from trainjob.records.prediction import Prediction
    from trainjob.render.request import Request
    from trainjob.requests.prepared import Prepared

app = new()
_MOST_ELEMENTS_SHOWN = 20


@app.command(
    epilog=examples(
        "trainjob plan --cluster pod64 --instances 8",
        "trainjob plan --cluster slurm-gpu --instances 16 --global-batch 1024",
    )
)
@takes_a_job
def plan(
    flags: JobOptions,
    steps: Annotated[
        bool, typer.Option("--steps", help="Show the steps of one weight update and each replica's share of the data.")
    ] = False,
    memory: Annotated[
        bool, typer.Option("--memory", help="Show the bytes that one device holds. This loads torch.")
    ] = False,
    predict: Annotated[
        bool,
        typer.Option(
            "--predict", help="If no earlier run shows how long the job takes, train for a few seconds on this machine."
        ),
    ] = False,
    as_json: show.AsJson = False,
) -> None:
    """Show the arithmetic and the picture: hosts, instances, replicas, devices, data, batch."""
    from trainjob.planning.picture import picture
    from trainjob.planning.rows import arithmetic
    from trainjob.requests.prepared import prepare

    prepared = prepare(flags)
    request = prepared.request
    planned = request.plan
    held = _memory(prepared) if memory else []
    predicted = _predicted(prepared, may_train=predict)
    if as_json:
        show.as_json({**_record(request, predicted, steps=steps), **({"memory": dict(held)} if memory else {})})
        return
    typer.echo(f"{planned.name} on {planned.cluster} ({planned.kind})\n")
    show.rows([*arithmetic(planned), *held])
    _elements(request)
    typer.echo()
    for line in picture(planned):
        typer.echo(line)
    if steps:
        _steps(request)
    _prediction(predicted)
    warnings(planned.warnings)


def _predicted(prepared: Prepared, *, may_train: bool) -> Prediction | None:
    """Return what the job should take, from earlier runs; without `may_train`, nothing is started to find out."""
    if may_train:
        from trainjob.cli.plan.predict import predictions

        return predictions(prepared, [prepared])[0]
    from trainjob.observe.predictions import earlier

    return earlier.predict(prepared.request)


def _prediction(one: Prediction | None) -> None:
    if one is None:
        return
    from trainjob.cli.plan import predict

    typer.echo(f"\npredicted from {one.basis}: median (90 % interval)")
    show.rows(predict.rows(one))


def _record(request: Request, predicted: Prediction | None, *, steps: bool) -> dict[str, Any]:
    from trainjob.planning.picture import steps as steps_of
    from trainjob.planning.record import as_record
    from trainjob.records.typed import to_json

    record: dict[str, Any] = to_json(as_record(request.plan))
    if request.swept:
        record["tasks"] = {number: to_json(as_record(element.plan)) for number, element in request.elements.items()}
    if steps:
        record["steps"] = steps_of(request.plan, request.job)
    if predicted is not None:
        record["prediction"] = to_json(predicted)
    return record


def _memory(prepared: Prepared) -> list[tuple[str, str]]:
    from trainjob.check.memory import layout, measured
    from trainjob.planning.memory import rows

    request = prepared.request
    figures = measured(request, prepared.project.top)
    return list(rows(figures, layout(request), request.cluster.device_memory_gb))


def _steps(request: Request) -> None:
    from trainjob.planning.picture import steps

    typer.echo("\none weight update:")
    for line in steps(request.plan, request.job):
        typer.echo(f"  {line}".rstrip())


def _elements(request: Request) -> None:
    """Print what each element of an array has of its own."""
    from trainjob.observe.arrays import differing, in_words

    if not request.swept:
        return
    typer.echo("\neach element as above, and:")
    shown = list(request.elements.items())[:_MOST_ELEMENTS_SHOWN]
    whole = request.job.given()
    show.rows((f"element {number}", in_words(differing(one.job.given(), whole))) for number, one in shown)
    if len(request.elements) > len(shown):
        typer.echo(f"  … and {len(request.elements) - len(shown)} more: --json shows all")


def warnings(problems: Sequence[Problem]) -> None:
    """Print a plan's warnings on the error stream, each with its cure."""
    for warning in problems:
        typer.echo(f"warning: {warning.text}; {warning.cure}", err=True)
