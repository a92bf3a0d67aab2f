"""trainjob container: build, run, and verify images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli import show
from trainjob.cli.app import new
from trainjob.contract import exits

if TYPE_CHECKING:
    from trainjob.verify.image import ImageVerdict

app = new(no_args_is_help=True, help="Build images that train, run them, and verify them.")

Kind = Annotated[str, typer.Argument(metavar="KIND", help="cpu | cuda | ipu.")]


@app.command()
def build(
    kind: Kind,
    base: Annotated[str | None, typer.Option("--base", help="Base image, instead of the Dockerfile's own.")] = None,
    wheelhouse: Annotated[
        Path | None, typer.Option("--wheelhouse", help="Folder of wheels; nothing is then asked of a registry.")
    ] = None,
    torch: Annotated[str | None, typer.Option("--torch", help="Requirement, as pip reads it; torch==2.13.0.")] = None,
    index_url: Annotated[str | None, typer.Option("--index-url", help="Index that has this torch.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="What the image is called; trainjob:KIND.")] = None,
    engine: Annotated[
        str | None, typer.Option("--engine", help="docker | podman | apptainer; the first that is here.")
    ] = None,
    network: Annotated[str | None, typer.Option("--network", help="The build's network: host, none.")] = None,
    archive: Annotated[
        Path | None, typer.Option("--archive", help="Also write the image as a file, for another machine or Apptainer.")
    ] = None,
    as_json: show.AsJson = False,
) -> None:
    """Build an image from the package that runs and a base."""
    from trainjob.images import build as images
    from trainjob.images.context import TORCH, Ingredients
    from trainjob.submit import engines

    program = engines.find(engine, engines.BUILDING)
    asked = images.Build(
        ingredients=Ingredients(kind, wheelhouse, torch or TORCH, index_url),
        engine=program,
        name=name or images.default_name(kind, program),
        base=base,
        network=network,
        archive=archive,
    )
    images.build(asked, to_stderr=as_json)
    if as_json:
        show.as_json({"image": asked.name, "engine": program, "digest": images.digest(asked)})
    else:
        typer.echo(f"\nimage {asked.name} is built. Next: {images.next_command(asked)}")


@app.command()
def run(
    kind: Kind,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORDS]...", help="After --: a trainjob command. Absent: the image verifies itself."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="The image; trainjob:KIND.")] = None,
    engine: Annotated[str | None, typer.Option("--engine", help="docker | podman; the first that is here.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the engine's command line and end.")] = False,
) -> None:
    """Run an image as you, in this folder, with its accelerators. The exit code is the container's."""
    import shlex

    from trainjob.images import running
    from trainjob.images.build import default_name
    from trainjob.images.context import check_kind
    from trainjob.submit import engines, process

    check_kind(kind)
    program = engine if dry_run and engine else engines.find(engine, engines.RUNNING)
    argv = running.argv(kind, program, name or default_name(kind, program), words or [], running.here())
    if dry_run:
        typer.echo(shlex.join(argv))
        return
    raise typer.Exit(process.show(argv))


@app.command()
def verify(as_json: show.AsJson = False) -> None:
    """Train here as an image does when it is run without a command: two ranks, beside one. The exit code tells."""
    from trainjob.cli.job_flags import JobFlags
    from trainjob.cli.workbench import workbench
    from trainjob.runs.prune import remove_run
    from trainjob.verify.image import verify_image

    flags = JobFlags(cluster="local", file=None, values={}, words=(), project=None, untracked=False)
    verdict = verify_image(workbench(flags), say=lambda line: typer.echo(f"{line} …", err=True))
    if as_json:
        show.as_json(verdict.as_json())
    else:
        _print(verdict)
    if not verdict.good:
        raise typer.Exit(exits.USER_OR_CLUSTER_CAN_FIX)
    for paths in verdict.runs:
        remove_run(paths)


def _print(verdict: ImageVerdict) -> None:
    typer.echo(" · ".join(f"{name} {version}" for name, version in verdict.versions.items()) + "\n")
    show.table(
        ("CHECK", "FOUND", "VERDICT"),
        ((one.what, one.found, "ok" if one.good else "NOT OK") for one in verdict.checks),
    )
    typer.echo(f"\n{'OK: what is installed here trains' if verdict.good else 'NOT OK'}")
