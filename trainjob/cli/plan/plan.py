"""trainjob plan: the arithmetic and the picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli.command import AsJson, command, commands
from trainjob.cli.job_flags import in_allocation, say_inside, takes_a_job
from trainjob.requests.options import JobOptions
from trainjob.watch import show

if TYPE_CHECKING:
    from trainjob.observe.earlier import EarlierRuns
    from trainjob.render.request import Request
    from trainjob.requests.prepared import Prepared

app = commands()

_MOST_ELEMENTS_SHOWN = 20


@command(
    app,
    "trainjob plan --cluster pod64 --instances 8",
    "trainjob plan --cluster slurm-gpu --instances 16 --global-batch 1024",
)
@takes_a_job(also=[in_allocation])
def plan(
    flags: JobOptions,
    inside: str | None,
    steps: Annotated[
        bool, typer.Option("--steps", help="Show the steps of one weight update and each replica's share of the data.")
    ] = False,
    memory: Annotated[
        bool, typer.Option("--memory", help="Show the bytes that one device holds. This loads torch.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the arithmetic and the picture: hosts, instances, replicas, devices, data, batch."""
    from trainjob.planning import picture
    from trainjob.planning.rows import arithmetic
    from trainjob.requests import budget, proofs
    from trainjob.requests.prepared import prepare

    prepared = prepare(flags._replace(inside=inside))
    say_inside(prepared)
    prepared.refuse_conflicts()
    request, planned = prepared.request, prepared.request.plan
    held = _memory(prepared) if memory else []
    chosen_by = f"chosen by {prepared.cluster_chosen_by}"
    earlier = _earlier_runs(request)
    where = [] if prepared.inside is None else [("inside", str(prepared.inside))]
    proof = proofs.known(prepared)
    charge = budget.charged(prepared)
    budgets = budget.standing(charge)
    if as_json:
        from trainjob.records.typed import to_json

        record: dict[str, object] = dict(to_json(planned))
        if request.swept:
            record["tasks"] = {number: to_json(element.plan) for number, element in request.elements.items()}
        if steps:
            record["steps"] = picture.steps(planned, request.job)
        if earlier is not None:
            record["earlier_runs"] = to_json(earlier)
        if prepared.inside is not None:
            held_job = prepared.inside.allocation._asdict()
            record["inside"] = {name: value for name, value in held_job.items() if name != "shown"}
        if charge.devices:
            record["cost"] = budget.as_json(charge, budgets)
        if proof is not None:
            record["resume_proof"] = to_json(proof)
        record["cluster_chosen_by"] = prepared.cluster_chosen_by
        show.as_json({**record, **({"memory": dict(held)} if memory else {})})
        return
    typer.echo(f"{planned.name} on {planned.cluster} ({planned.kind})")
    typer.echo(f"cluster {planned.cluster}, from {prepared.named_cluster.origin_word}: {chosen_by}\n")
    past = [] if earlier is None else [("earlier runs", str(earlier))]
    show.rows([*arithmetic(planned), *budget.rows(charge, budgets), *held, *where, *past])
    if request.swept:
        _print_elements(request)
    if proof is not None:
        typer.echo(f"\n{show.visible(str(proof))}")
    typer.echo()
    for line in picture.picture(planned):
        typer.echo(line)
    if steps:
        typer.echo("\none weight update:")
        for line in picture.steps(planned, request.job):
            typer.echo(f"  {line}".rstrip())
    for line in [*(f"{one.text}; {one.cure}" for one in planned.warnings), *map(str, budget.refusals(charge, budgets))]:
        show.warning(line)


def _earlier_runs(request: Request) -> EarlierRuns | None:
    from trainjob.observe import index

    if request.elements or not any(index.newest(1)):
        return None  # before reading them is loaded
    from trainjob.observe.earlier import earlier_runs, record_of

    return earlier_runs(record_of(request))


def _memory(prepared: Prepared) -> list[tuple[str, str]]:
    from trainjob.check.memory import layout, measured
    from trainjob.planning.memory import rows

    request = prepared.request
    figures = measured(request, prepared.project.top)
    return list(rows(figures, layout(request), request.cluster.device_memory_gb))


def _print_elements(request: Request) -> None:
    """Print the settings of each element of an array that differ from those of the whole."""
    from trainjob.observe.arrays import differing, in_words

    typer.echo("\neach element as above, and:")
    shown = list(request.elements.items())[:_MOST_ELEMENTS_SHOWN]
    whole = request.job.given()
    show.rows((f"element {number}", in_words(differing(one.job.given(), whole))) for number, one in shown)
    if len(request.elements) > len(shown):
        typer.echo(f"  … and {len(request.elements) - len(shown)} more: --json shows all")
