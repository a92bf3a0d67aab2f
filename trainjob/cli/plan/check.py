"""trainjob check: everything that can be wrong before queueing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli.app import examples, new
from trainjob.cli.job_flags import takes_a_job
from trainjob.contract import exits
from trainjob.requests.options import JobOptions
from trainjob.watch import show

if TYPE_CHECKING:
    from trainjob.check.software import Interpreter
    from trainjob.contract.errors import Problem
    from trainjob.requests.prepared import Prepared

app = new()


@app.command(
    epilog=examples(
        "trainjob check --cluster hpc --job mine.yaml",
        "trainjob check --cluster hpc --task my_task:MyTask --ask-controller",
    )
)
@takes_a_job
def check(
    flags: JobOptions,
    ask_controller: Annotated[
        bool,
        typer.Option("--ask-controller", help="Also ask Slurm: sinfo, and sbatch --test-only, which uses up a job id."),
    ] = False,
    as_json: show.AsJson = False,
) -> None:
    """Find problems before a job is queued."""
    from trainjob.check import requirements
    from trainjob.check.context import Depth
    from trainjob.check.software import interpreters
    from trainjob.requests.prepared import prepare
    from trainjob.requests.submission import context_of, find_problems

    prepared = prepare(flags)
    context = context_of(prepared)
    found = find_problems(prepared, Depth(thorough=True, scheduler=ask_controller), context)
    start = None
    if ask_controller and not found:
        script = prepared.render()
        start, found = _start(prepared, script.files[script.script].content)
    _say(found, start, interpreters(context) if requirements.is_reachable(prepared.request) else [], as_json=as_json)
    if found:
        raise typer.Exit(exits.USER_OR_CLUSTER_CAN_FIX)


def _start(prepared: Prepared, script: bytes) -> tuple[str | None, list[Problem]]:
    """Return when Slurm would start the job, or why it would not."""
    from trainjob.check import slurm
    from trainjob.contract.errors import Problem, UserError

    if not prepared.named_cluster.cluster.has_scheduler:
        raise UserError(
            f"--ask-controller asks Slurm, and cluster {prepared.named_cluster.name} has none", "leave it out"
        )
    answer = slurm.test_only(prepared.machine, script)
    return (None, [answer]) if isinstance(answer, Problem) else (answer, [])


def _say(problems: list[Problem], start: str | None, interpreters: list[Interpreter], *, as_json: bool) -> None:
    if as_json:
        verdict = {"ok": not problems, "problems": [problem.as_json() for problem in problems], "expected_start": start}
        verdict["interpreters"] = [one._asdict() for one in interpreters]
        show.as_json(verdict)
        return
    for one in interpreters:
        typer.echo(str(one))
    for problem in problems:
        typer.echo(str(problem))
    typer.echo(f"{len(problems)} problem{'' if len(problems) == 1 else 's'}" if problems else "no problems found")
    if start is not None:
        typer.echo(f"Slurm would start it at {start}")
