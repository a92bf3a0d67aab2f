"""trainjob render: the bytes that would run."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli import show
from trainjob.cli.app import new
from trainjob.cli.job_flags import JobFlags, takes_a_job

if TYPE_CHECKING:
    from trainjob.contract.paths import RunPaths
    from trainjob.render.rendered import Rendered

app = new()


@app.command()
@takes_a_job
def render(
    flags: JobFlags,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder to write: job script, job.json, code.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show beside each line where its values came from.")
    ] = False,
    as_json: show.AsJson = False,
) -> None:
    """Print or write the bytes that would run."""
    from trainjob.cli.prepared import prepare, selected
    from trainjob.submit import folder

    prepared = prepare(flags)
    rendered = prepared.render()
    if explain:
        _explain(prepared.explained(), as_json=as_json)
    elif output is not None:
        folder.refuse_what_slurm_misreads(output, rendered.script)
        chosen = selected(prepared, untracked=flags.untracked)
        paths = folder.create(output, rendered, prepared.project if chosen else None, chosen)
        _say_where(paths, rendered, as_json=as_json)
    else:
        print_rendered(rendered, as_json=as_json)


def print_rendered(rendered: Rendered, *, as_json: bool) -> None:
    """Print the very bytes of the job script; with `as_json` every rendered file by its name."""
    if as_json:
        show.as_json({name: file.content.decode() for name, file in rendered.files.items()})
    else:
        sys.stdout.buffer.write(rendered.files[rendered.script].content)


def _say_where(paths: RunPaths, rendered: Rendered, *, as_json: bool) -> None:
    if as_json:
        show.as_json({"folder": str(paths.folder), "script": rendered.script, "files": sorted(rendered.files)})
    else:
        script = paths.folder / rendered.script
        typer.echo(f"{script} is written: run it with `{_by_hand(script)}`")


def _by_hand(script: Path) -> str:
    if script.suffix == ".sbatch":
        return f"cd {shlex.quote(str(script.parent))} && sbatch {script.name}"
    return f"bash {shlex.quote(str(script))}"


def _explain(explained: str, *, as_json: bool) -> None:
    from trainjob.render.explain import beside

    lines = list(beside(explained))
    if as_json:
        show.as_json([{"line": line, "from": origins} for line, origins in lines])
        return
    width = min(100, max(len(line) for line, _ in lines))
    for line, origins in lines:
        typer.echo(f"{line:<{width}}  # {origins}" if origins else line)
