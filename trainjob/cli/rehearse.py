"""trainjob rehearse: the very bytes of a job, here and on CPU, with a fault injected where one is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli import show
from trainjob.cli.app import new
from trainjob.cli.job_flags import JobFlags, takes_a_job
from trainjob.contract import exits

if TYPE_CHECKING:
    from trainjob.cli.prepared import Prepared
    from trainjob.rehearse.base import Rehearsal, Verdict

app = new()

_UPDATES = 5


@app.command()
@takes_a_job
def rehearse(
    flags: JobFlags,
    inject: Annotated[
        str | None, typer.Option("--inject", help="timeout | preempt | node-failure | rank-death | cancel.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the run directory, which goes when all went well.")
    ] = False,
    shell: Annotated[
        bool, typer.Option("--shell", help="Open a shell that has a pod's poprun, vipu, poptorch and popdist.")
    ] = False,
    as_json: show.AsJson = False,
) -> None:
    """Run the very bytes of a job here, on CPU. --updates (5) ends it early and changes no byte."""
    from trainjob.rehearse import kinds
    from trainjob.rehearse.base import INJECTIONS

    if shell or flags.words[:1] == ("poprun",):
        raise typer.Exit(_by_hand(flags, shell=shell))
    if inject not in (None, *INJECTIONS):
        raise typer.BadParameter(f"--inject {inject}: expected one of {', '.join(INJECTIONS)}")
    asked = _asked(flags, inject, quiet=as_json)
    try:
        verdict = kinds.rehearse(asked)
    except KeyboardInterrupt:
        _remove(asked.folder)
        raise
    kept = keep or not verdict.passed
    if not kept:
        _remove(asked.folder)
    if as_json:
        show.as_json({**verdict.as_json(), "kept": kept, "redirects": dict(asked.redirects)})
    else:
        _print(verdict, kept=kept)
    if not verdict.passed:
        raise typer.Exit(exits.USER_OR_CLUSTER_CAN_FIX)


def _by_hand(flags: JobFlags, *, shell: bool) -> int:
    import os

    from trainjob.cluster.lookup import find
    from trainjob.rehearse import by_hand
    from trainjob.rehearse.redirects import redirects

    if shell and flags.words:
        raise typer.BadParameter("--shell opens a shell and takes no command: give one of the two")
    found = find(flags.cluster)
    here = find("local").cluster.data_dir
    redirected = redirects(found.cluster, os.environ, None, Path(here).expanduser() if here else None)
    if shell:
        return by_hand.shell(found.name, found.cluster, redirected)
    return by_hand.run(found.name, found.cluster, flags.words, redirected)


def _asked(flags: JobFlags, inject: str | None, *, quiet: bool) -> Rehearsal:
    from trainjob.cli.prepared import prepare, selected
    from trainjob.rehearse.base import Rehearsal
    from trainjob.runs import index

    # --updates is the rehearsal's own: it must not change the bytes.
    values = {name: value for name, value in flags.values.items() if name != "updates"}
    prepared = prepare(flags._replace(values=values))
    return Rehearsal(
        request=prepared.request,
        rendered=prepared.render(),
        project=prepared.project,
        selection=selected(prepared, untracked=flags.untracked),
        folder=index.home() / "rehearsals" / index.new_id(prepared.request.plan.name),
        redirects=_redirects(prepared, flags.values.get("updates"), inject),
        inject=inject,
        say=(lambda _line: None) if quiet else typer.echo,
    )


def _redirects(prepared: Prepared, updates: int | None, inject: str | None) -> dict[str, str]:
    import os

    from trainjob.cluster.lookup import find
    from trainjob.rehearse.redirects import redirects

    # A fault needs a job that still trains when it strikes.
    ends_after = updates or (None if inject else _UPDATES)
    here = find("local").cluster.data_dir
    return redirects(prepared.found.cluster, os.environ, ends_after, Path(here).expanduser() if here else None)


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _print(verdict: Verdict, *, kept: bool) -> None:
    typer.echo()
    show.rows((step, f"{at_s:6.2f} s") for step, at_s in verdict.seconds.items())
    typer.echo()
    if verdict.same_bytes:
        typer.echo("same bytes: what ran is what `trainjob render` writes, byte for byte")
    typer.echo(f"{'PASSED' if verdict.passed else 'FAILED'}: {verdict.outcome}")
    if not verdict.passed:
        typer.echo(f"expected: {verdict.expected}")
    if kept:
        typer.echo(f"kept, to be looked at: {verdict.folder}")
