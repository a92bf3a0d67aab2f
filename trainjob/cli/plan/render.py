"""trainjob render: the bytes that would run."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli.command import AsJson, command, commands
from trainjob.cli.job_flags import AllowSecretEnv, in_allocation, say_inside, takes_a_job
from trainjob.requests.options import JobOptions
from trainjob.watch import show

if TYPE_CHECKING:
    from trainjob.render.rendered import Rendered
    from trainjob.requests.prepared import Prepared

app = commands()


@command(app, "trainjob render --cluster hpc --instances 16 -o job", "trainjob render --cluster pod64 --explain")
@takes_a_job(also=[in_allocation])
def render(
    flags: JobOptions,
    inside: str | None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder to write: job script, job.json, code.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show beside each line where its values came from and why it is there.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also print the shell library that every job script sources.")
    ] = False,
    allow_secret_env: AllowSecretEnv = False,
    as_json: AsJson = False,
) -> None:
    """Print or write the bytes that would run."""
    from trainjob.requests.prepared import prepare

    prepared = prepare(flags._replace(inside=inside))
    say_inside(prepared)
    rendered = prepared.render()
    if explain:
        _explain(prepared.explained(), as_json=as_json)
    elif output is None:
        print_rendered(rendered, as_json=as_json, everything=everything)
    else:
        _write(prepared, rendered, output, allow_secret_env=allow_secret_env, as_json=as_json)


def print_rendered(rendered: Rendered, *, as_json: bool, everything: bool = False) -> None:
    """Print the very bytes of the job script; with `as_json` every rendered file by its name.

    With `everything` the shell library follows, which the script sources and which travels in the run directory.
    """
    from trainjob.render import library

    if as_json:
        files = {name: file.content.decode() for name, file in rendered.files.items()}
        show.document({**files, **(library.texts() if everything else {})})
        return
    sys.stdout.buffer.write(rendered.files[rendered.script].content)
    if everything:
        for name, text in library.texts().items():
            sys.stdout.buffer.write(f"\n# --- {name} ---\n{text}".encode())


def _write(prepared: Prepared, rendered: Rendered, output: Path, *, allow_secret_env: bool, as_json: bool) -> None:
    from trainjob.backends import folder, registry
    from trainjob.requests.submission import refuse_secrets

    if not allow_secret_env:
        refuse_secrets(prepared, can_allow=True)
    cluster, chosen = prepared.named_cluster.cluster, prepared.selection
    registry.get(cluster.back_end).refuse_folder(output.absolute())
    paths = folder.create(output, rendered, prepared.project if chosen else None, chosen, cluster.share)
    if as_json:
        show.as_json({"folder": str(paths.folder), "script": rendered.script, "files": sorted(rendered.files)})
        return
    by_hand = cluster.by_hand.format(folder=shlex.quote(str(paths.folder)), script=rendered.script)
    typer.echo(f"wrote {paths.folder / rendered.script}: run it with `{by_hand}`")


def _explain(explained: str, *, as_json: bool) -> None:
    from trainjob.render.sourced import beside, in_columns

    if as_json:
        show.as_json([{"line": line, "from": origin, "why": why} for line, origin, why in beside(explained)])
        return
    for line in in_columns(explained):
        typer.echo(line)
