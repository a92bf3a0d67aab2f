"""trainjob check: everything that can be wrong before queueing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli import show
from trainjob.cli.app import new
from trainjob.cli.job_flags import JobFlags, takes_a_job
from trainjob.contract import exits

if TYPE_CHECKING:
    from trainjob.cli.prepared import Prepared
    from trainjob.submit.checking.problem import Problem
    from trainjob.submit.project import Selection

app = new()


@app.command()
@takes_a_job
def check(
    flags: JobFlags,
    ask_controller: Annotated[
        bool,
        typer.Option("--ask-controller", help="Ask Slurm, too: sinfo, and sbatch --test-only, which uses up a job id."),
    ] = False,
    as_json: show.AsJson = False,
) -> None:
    """Find what is wrong before queueing."""
    from trainjob.cli.prepared import prepare, selected
    from trainjob.submit.check import Depth, problems

    prepared = prepare(flags)
    script = prepared.render()
    chosen = selected(prepared, untracked=flags.untracked)
    depth = Depth(imports=True, partition=ask_controller)
    found = problems(prepared.request, prepared.project, chosen, depth)
    start = None
    if ask_controller and not found:
        start, found = _start(prepared, script.files[script.script].content)
    _say(found, start, as_json=as_json)
    if found:
        raise typer.Exit(exits.USER_OR_CLUSTER_CAN_FIX)


def _start(prepared: Prepared, script: bytes) -> tuple[str | None, list[Problem]]:
    """Return when Slurm would start the job, or why it would not."""
    from trainjob.contract.errors import UserError
    from trainjob.submit.checking import live
    from trainjob.submit.checking.problem import Problem

    if prepared.found.cluster.kind != "slurm":
        raise UserError(f"--ask-controller asks Slurm, and cluster {prepared.found.name} has none: leave it out")
    answer = live.test_only(prepared.machine, script)
    return (None, [answer]) if isinstance(answer, Problem) else (answer, [])


def _say(found: list[Problem], start: str | None, *, as_json: bool) -> None:
    if as_json:
        verdict = {"ok": not found, "problems": [problem.as_json() for problem in found], "expected_start": start}
        show.as_json(verdict)
        return
    for problem in found:
        typer.echo(str(problem))
    typer.echo(f"{len(found)} wrong" if found else "nothing is wrong")
    if start is not None:
        typer.echo(f"Slurm would start it at {start}")


def refuse_problems(prepared: Prepared, selection: Selection | None) -> None:
    """Raise UserError with every problem that is seen without running anything of the job."""
    from trainjob.contract.errors import UserError
    from trainjob.submit.check import Depth, problems

    found = problems(prepared.request, prepared.project, selection, Depth(partition=True))
    if found:
        raise UserError("; ".join(str(problem) for problem in found))
