"""trainjob render: the bytes that would run."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli.app import examples, new
from trainjob.cli.job_flags import AllowSecretEnv, takes_a_job
from trainjob.requests.options import JobOptions
from trainjob.watch import show

if TYPE_CHECKING:
    from trainjob.contract.paths import RunPaths
    from trainjob.render.rendered import Rendered
    from trainjob.requests.prepared import Prepared

app = new()


@app.command(
    epilog=examples("trainjob render --cluster hpc --instances 16 -o job", "trainjob render --cluster pod64 --explain")
)
@takes_a_job
def render(
    flags: JobOptions,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder to write: job script, job.json, code.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show beside each line where its values came from and why it is there.")
    ] = False,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Print the shell library, too: what the script does that is the same for all jobs."),
    ] = False,
    allow_secret_env: AllowSecretEnv = False,
    as_json: show.AsJson = False,
) -> None:
    """Print or write the bytes that would run."""
    from trainjob.requests.prepared import prepare

    prepared = prepare(flags)
    rendered = prepared.render()
    if explain:
        _explain(prepared.explained(), as_json=as_json)
    elif output is not None:
        if not allow_secret_env:
            from trainjob.requests.submission import refuse_secrets

            refuse_secrets(prepared)
        _say_where(_written(prepared, rendered, output), rendered, as_json=as_json)
    else:
        print_rendered(rendered, as_json=as_json, everything=everything)


def _written(prepared: Prepared, rendered: Rendered, output: Path) -> RunPaths:
    from trainjob.backends import folder, registry

    registry.of_cluster(prepared.named_cluster.cluster).refuse_folder(output.absolute())
    chosen = prepared.selection
    share = prepared.named_cluster.cluster.share
    return folder.create(output, rendered, prepared.project if chosen else None, chosen, share)


def print_rendered(rendered: Rendered, *, as_json: bool, everything: bool = False) -> None:
    """Print the very bytes of the job script; with `as_json` every rendered file by its name.

    With `everything` the shell library follows, which the script sources and which travels in the run directory.
    """
    from trainjob.render import library

    if as_json:
        files = {name: file.content.decode() for name, file in rendered.files.items()}
        show.as_json({**files, **(library.texts() if everything else {})})
        return
    sys.stdout.buffer.write(rendered.files[rendered.script].content)
    if everything:
        for name, text in library.texts().items():
            sys.stdout.buffer.write(f"\n# --- {name} ---\n{text}".encode())


def _say_where(paths: RunPaths, rendered: Rendered, *, as_json: bool) -> None:
    if as_json:
        show.as_json({"folder": str(paths.folder), "script": rendered.script, "files": sorted(rendered.files)})
    else:
        script = paths.folder / rendered.script
        typer.echo(f"wrote {script}: run it with `{_by_hand(script)}`")


def _by_hand(script: Path) -> str:
    if script.suffix == ".sbatch":
        return f"cd {shlex.quote(str(script.parent))} && sbatch {script.name}"
    return f"bash {shlex.quote(str(script))}"


def _explain(explained: str, *, as_json: bool) -> None:
    from trainjob.render.sourced import beside

    lines = list(beside(explained))
    if as_json:
        show.as_json([{"line": line, "from": origin, "why": why} for line, origin, why in lines])
        return
    width = min(100, max(len(line) for line, _, _ in lines))
    for line, origin, why in lines:
        typer.echo(f"{line:<{width}}  # {origin}: {why}" if why else line)
