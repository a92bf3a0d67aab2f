"""trainjob data: prepare, list and check data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainjob.cli import complete, show
from trainjob.cli.app import new

app = new(no_args_is_help=True, help="Prepare, list and check data sets.")

Cluster = Annotated[
    str, typer.Option("--cluster", "-c", help="Whose data_dir is meant.", autocompletion=complete.clusters)
]
Folder = Annotated[Path | None, typer.Option("--data-dir", help="A folder of data sets, instead of the cluster's.")]


@app.command()
def prepare(
    name: Annotated[str, typer.Argument(metavar="NAME", help="digits | cifar10 | synthetic.")],
    cluster: Cluster = "local",
    data_dir: Folder = None,
    source: Annotated[
        str | None, typer.Option("--from", metavar="FILE-or-URL", help="cifar10: its archive, cifar-10-python.tar.gz.")
    ] = None,
    sha256: Annotated[
        str | None, typer.Option("--sha256", help="Of the archive. Absent: it must be the official one.")
    ] = None,
    samples: Annotated[int | None, typer.Option("--samples", help="synthetic: training images; 8,192.")] = None,
    held_out: Annotated[int | None, typer.Option("--held-out", help="synthetic: held-out images; 2,048.")] = None,
    shape: Annotated[str | None, typer.Option("--shape", help="synthetic: of an image; 3x32x32.")] = None,
    classes: Annotated[int | None, typer.Option("--classes", help="synthetic: 10.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="synthetic: 0.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Replace what is there.")] = False,
    as_json: show.AsJson = False,
) -> None:
    """Put a data set under the data folder, whole or not at all."""
    from trainjob.data.prepare import prepare as made
    from trainjob.data.sizes import parse_shape

    folder = made(
        name,
        _folder(cluster, data_dir),
        again=again,
        say=lambda line: typer.echo(line, err=True),
        source=source,
        sha256=sha256,
        samples=samples,
        held_out=held_out,
        shape=None if shape is None else parse_shape(shape),
        classes=classes,
        seed=seed,
    )
    if as_json:
        show.as_json({"name": name, "folder": str(folder)})
    else:
        typer.echo(f"{name} is prepared: {folder}")


@app.command("list")
def list_data(cluster: Cluster = "local", data_dir: Folder = None, as_json: show.AsJson = False) -> None:
    """List the data sets that a run would find, those that ship with trainjob among them."""
    from trainjob.data.listing import list_prepared

    found = list_prepared(_folder(cluster, data_dir))
    if as_json:
        show.as_json([{**one._asdict(), "folder": str(one.folder)} for one in found])
        return
    show.table(
        ("NAME", "SAMPLES", "SIZE", "FOLDER"),
        (
            (
                one.name,
                ", ".join(f"{split} {count:,}" for split, count in one.samples.items()),
                show.size(one.bytes),
                str(one.folder),
            )
            for one in found
        ),
    )


@app.command()
def check(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A prepared data set.")],
    cluster: Cluster = "local",
    data_dir: Folder = None,
    as_json: show.AsJson = False,
) -> None:
    """Read every byte of a data set and compare it with its manifest."""
    from trainjob.contract import manifest
    from trainjob.data.checking import check_folder

    where = _folder(cluster, data_dir)
    folder = manifest.find(name, where)
    if folder is None:
        raise manifest.not_prepared(name, where)
    check_folder(folder)
    if as_json:
        show.as_json({"name": name, "folder": str(folder), "ok": True})
    else:
        typer.echo(f"{name} is sound: {folder}")


def _folder(cluster: str, asked: Path | None) -> Path:
    from trainjob.cluster.lookup import find
    from trainjob.contract.errors import UserError

    if asked is not None:
        return asked
    known = find(cluster).cluster.data_dir
    if known is None:
        raise UserError(f"cluster {cluster} has no data_dir: add one to its file, or give --data-dir FOLDER")
    return Path(known).expanduser()
