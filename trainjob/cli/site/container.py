"""trainjob container: build, run, and verify images."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from trainjob.cli.command import PATH, Group, fail_unless, json_option
from trainjob.contract import exits
from trainjob.watch import show

kind_argument = click.argument("kind", metavar="KIND", help="cpu | cuda | ipu.")


@click.group(cls=Group)
def container() -> None:
    """Build images for training, run them, and verify them."""


@container.command(
    examples=["trainjob container build cpu", "trainjob container build cuda --name registry.example/trainjob:cuda"]
)
@kind_argument
@click.option("--base", help="Base image, instead of the Dockerfile's own.")
@click.option("--wheelhouse", type=PATH, help="Folder of wheels; pip then asks no index.")
@click.option("--torch", help="Requirement as pip reads it. Default: torch==2.13.0.")
@click.option("--index-url", help="Package index that has this torch.")
@click.option("--name", help="Name of the image. Default: trainjob:KIND.")
@click.option("--engine", help="docker | podman | apptainer. Default: the first that is installed and answers.")
@click.option("--network", help="Network of the build: host, none.")
@click.option("--archive", type=PATH, help="Also write the image as a file, for another machine or Apptainer.")
@json_option
def build(
    kind: str,
    base: str | None,
    wheelhouse: Path | None,
    torch: str | None,
    index_url: str | None,
    name: str | None,
    engine: str | None,
    network: str | None,
    archive: Path | None,
    as_json: bool,
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
        click.echo(f"\nbuilt image {image.name}. Next: {images.next_command(image)}")


@container.command(
    examples=["trainjob container run cpu", "trainjob container run cuda -- submit --cluster local --follow"]
)
@kind_argument
@click.argument(
    "words", nargs=-1, metavar="[WORDS]...", help="After --: a trainjob command. Default: the image verifies itself."
)
@click.option("--name", help="The image. Default: trainjob:KIND.")
@click.option("--engine", help="docker | podman. Default: the first that is installed and answers.")
@click.option("--dry-run", is_flag=True, help="Print the engine's command line and end.")
@json_option
def run(kind: str, words: tuple[str, ...], name: str | None, engine: str | None, dry_run: bool, as_json: bool) -> None:
    """Run an image as your user, in this folder, with its accelerators. The exit code is the container's.

    With --json the output of the container goes to the error stream; its command line and exit code are printed.
    """
    from trainjob.images import engines as images
    from trainjob.images.context import check_kind
    from trainjob.machines import container_engines as engines
    from trainjob.machines import process

    check_kind(kind)
    program = engine if dry_run and engine else engines.find(engine, engines.RUNNING)
    argv = images.run_command(kind, program, name or images.default_name(kind, program), words, images.caller())
    code = None if dry_run else process.show(argv, to_stderr=as_json)
    if as_json:
        show.as_json({"argv": argv, "exit_code": code})
    elif dry_run:
        click.echo(shlex.join(argv))
    raise click.exceptions.Exit(code or exits.DONE)


@container.command(examples=["trainjob container verify", "trainjob container verify --json"])
@json_option
def verify(as_json: bool) -> None:
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
        click.echo(" · ".join(f"{name} {version}" for name, version in verdict.versions.items()) + "\n")
        rows = ((one.what, one.result, "ok" if one.good else "NOT OK") for one in verdict.checks)
        show.table(("CHECK", "FOUND", "VERDICT"), rows)
        click.echo(f"\n{'OK: this installation trains' if verdict.good else 'NOT OK'}")
    fail_unless(verdict.good)
