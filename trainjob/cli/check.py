"""trainjob check: everything that can be wrong before queueing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from trainjob.cli import show
from trainjob.cli.app import new
from trainjob.cli.job_flags import JobFlags, takes_a_job
from trainjob.contract import exits

if TYPE_CHECKING:
    from trainjob.cli.prepared import Prepared
    from trainjob.submit.check import Problem
    from trainjob.submit.project import Selection

app = new()


@app.command()
@takes_a_job
def check(flags: JobFlags, as_json: show.AsJson = False) -> None:
    """Find what is wrong before queueing."""
    from trainjob.cli.prepared import prepare, selected

    prepared = prepare(flags)
    prepared.render()
    problems = _problems(prepared, selected(prepared, untracked=flags.untracked))
    if as_json:
        show.as_json({"ok": not problems, "problems": [problem.as_json() for problem in problems]})
    else:
        for problem in problems:
            typer.echo(f"{problem.text}. {problem.cure}")
        typer.echo("nothing is wrong" if not problems else f"{len(problems)} wrong")
    if problems:
        raise typer.Exit(exits.USER_OR_CLUSTER_CAN_FIX)


def refuse_problems(prepared: Prepared, selection: Selection | None) -> None:
    """Raise UserError with every problem that the check finds."""
    from trainjob.contract.errors import UserError

    problems = _problems(prepared, selection)
    if problems:
        raise UserError("; ".join(f"{problem.text}. {problem.cure}" for problem in problems))


def _problems(prepared: Prepared, selection: Selection | None) -> list[Problem]:
    from trainjob.submit.check import problems

    return problems(prepared.request, prepared.project, selection)
