"""trainjob container: build, run, and verify images."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from trainjob.cli.command import AsJson, command, commands, fail_unless
from trainjob.contract import exits
from trainjob.watch import show

ImageKind = Annotated[str, typer.Argument(metavar="KIND", help="cpu | cuda | ipu.")]


app = commands("Build images for training, run them, and verify them.")


@command(app, "trainjob container build cpu", "trainjob container build cuda --name registry.example/trainjob:cuda")
def build(
    kind: ImageKind,
    base: Annotated[str | None, typer.Option(help="Base image, instead of the Dockerfile's own.")] = None,
    wheelhouse: Annotated[Path | None, typer.Option(help="Folder of wheels; pip then asks no index.")] = None,
    torch: Annotated[str | None, typer.Option(help="Requirement as pip reads it. Default: torch==2.13.0.")] = None,
    index_url: Annotated[str | None, typer.Option(help="Package index that has this torch.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the image. Default: trainjob:KIND.")] = None,
    engine: Annotated[
        str | None,
        typer.Option(help="docker | podman | apptainer. Default: the first that is installed and answers."),
    ] = None,
    network: Annotated[str | None, typer.Option(help="Network of the build: host, none.")] = None,
    archive: Annotated[
        Path | None, typer.Option(help="Also write the image as a file, for another machine or Apptainer.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Build an image from a base image and this installation of trainjob."""
    from trainjob.images import engines as images
    from trainjob.images.context import TORCH, Ingredients
    from trainjob.machines import container_engines as engines

    program = engines.find(engine, engines.BUILDING)
    image = images.Build(
        ingredients=Ingredients(kind, wheelhouse, torch or TORCH, index_url),
        engine=program,
        name=name or images.default_name(kind, program),
        base=base,
        network=network,
        archive=archive,
    )
    images.build(image, to_stderr=as_json)
    if as_json:
        show.as_json({"image": image.name, "engine": program, "digest": images.digest(image)})
    else:
        typer.echo(f"\nbuilt image {image.name}. Next: {images.next_command(image)}")


@command(app, "trainjob container run cpu", "trainjob container run cuda -- submit --cluster local --follow")
def run(
    kind: ImageKind,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORDS]...", help="After --: a trainjob command. Default: the image verifies itself."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="The image. Default: trainjob:KIND.")] = None,
    engine: Annotated[
        str | None, typer.Option(help="docker | podman. Default: the first that is installed and answers.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the engine's command line and end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run an image as your user, in this folder, with its accelerators. The exit code is the container's.

    With --json the output of the container goes to the error stream; its command line and exit code are printed.
    """
    from trainjob.images import engines as images
    from trainjob.images.context import check_kind
    from trainjob.machines import container_engines as engines
    from trainjob.machines import process

    check_kind(kind)
    program = engine if dry_run and engine else engines.find(engine, engines.RUNNING)
    argv = images.run_command(kind, program, name or images.default_name(kind, program), words or (), images.caller())
    code = None if dry_run else process.show(argv, to_stderr=as_json)
    if as_json:
        show.as_json({"argv": argv, "exit_code": code})
    elif dry_run:
        typer.echo(shlex.join(argv))
    raise typer.Exit(code or exits.DONE)


@command(app, "trainjob container verify", "trainjob container verify --json")
def verify(as_json: AsJson = False) -> None:
    """Train as an image without a command does: two ranks, compared with one. The exit code is the verdict."""
    from trainjob.requests.interface import plan
    from trainjob.requests.workbench import refuse_unfit, workbench
    from trainjob.verify.tasks.image import verify_image

    prepared = plan("local").prepared
    refuse_unfit(prepared)
    with workbench(prepared, show.progress) as bench:
        verdict = verify_image(bench)
        if not verdict.good:
            bench.keep()
    if as_json:
        show.as_json(verdict.as_json())
    else:
        typer.echo(" · ".join(f"{name} {version}" for name, version in verdict.versions.items()) + "\n")
        rows = ((one.what, one.result, "ok" if one.good else "NOT OK") for one in verdict.checks)
        show.table(("CHECK", "FOUND", "VERDICT"), rows)
        typer.echo(f"\n{'OK: this installation trains' if verdict.good else 'NOT OK'}")
    fail_unless(verdict.good)
