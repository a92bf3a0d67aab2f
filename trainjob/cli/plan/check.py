"""trainjob check: everything that can be wrong before queueing."""

from __future__ import annotations

from typing import Annotated

import typer

from trainjob.cli.command import AsJson, command, commands, fail_unless
from trainjob.cli.job_flags import in_allocation, propose_site, takes_a_job
from trainjob.contract.errors import Problem, UserError
from trainjob.planning.words import quantity
from trainjob.requests.options import JobOptions
from trainjob.watch import show

app = commands()


@command(
    app,
    "trainjob check --cluster hpc --job mine.yaml",
    "trainjob check --cluster hpc --task my_task:MyTask --ask-controller",
)
@takes_a_job(also=[in_allocation])
def check(
    flags: JobOptions,
    inside: str | None,
    ask_controller: Annotated[
        bool,
        typer.Option("--ask-controller", help="Also ask Slurm: sinfo, and sbatch --test-only, which uses up a job id."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Find problems before a job is queued."""
    from trainjob.check import requirements, slurm
    from trainjob.check.checks import NO_SLURM
    from trainjob.check.context import Depth
    from trainjob.check.software import interpreters
    from trainjob.requests.prepared import prepare
    from trainjob.requests.submission import context_of, find_problems

    prepared = prepare(flags._replace(inside=inside))
    propose_site(prepared)
    name, cluster = prepared.named_cluster.name, prepared.named_cluster.cluster
    context = context_of(prepared)
    problems = find_problems(prepared, Depth(thorough=True, scheduler=ask_controller), context)
    start = None
    if ask_controller and not problems:
        if not cluster.has_scheduler:
            raise UserError(f"--ask-controller asks Slurm, and cluster {name} has none", "leave it out")
        rendered = prepared.render()
        answer = slurm.test_only(prepared.machine, rendered.files[rendered.script].content)
        if isinstance(answer, Problem):
            problems = [answer]
        else:
            start = answer
    was_looked_at = requirements.is_reachable(prepared.request) and all(one.code != NO_SLURM for one in problems)
    found = interpreters(context) if was_looked_at else []
    if as_json:
        verdict = {"ok": not problems, "problems": [problem.as_json() for problem in problems], "expected_start": start}
        show.as_json({**verdict, "interpreters": [one._asdict() for one in found]})
    else:
        for line in (*found, *problems):
            typer.echo(str(line))
        typer.echo(quantity(len(problems), "problem") if problems else "no problems found")
        if start is not None:
            typer.echo(f"Slurm would start it at {start}")
    fail_unless(not problems)
