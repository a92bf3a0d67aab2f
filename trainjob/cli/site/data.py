"""trainjob data: prepare, list and check data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainjob.cli.command import AsJson, cluster_option, command, commands
from trainjob.watch import show

ClusterOfData = Annotated[str, cluster_option("Cluster whose data_dir is used.")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder of data sets, in place of the cluster's.")]


app = commands("Prepare, list and check data sets.")


@command(
    app,
    "trainjob data prepare cifar10 --data-dir /shared/data",
    "trainjob data prepare novels --kind text --from ~/texts",
)
def prepare(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="digits | cifar10 | synthetic | python-docs, or a name of yours.")
    ],
    cluster: ClusterOfData = "local",
    data_dir: DataDir = None,
    kind: Annotated[
        str | None,
        typer.Option(
            help="What a data set of your own is made from: imagefolder | webdataset | parquet | text | tokens.",
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PATH-or-URL",
            help="What a data set of your own is made from. cifar10: its archive, cifar-10-python.tar.gz.",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="How images are stored: resized (uint8, the default), packed (as they are, in one file), or index "
            "(they stay where they are).",
        ),
    ] = None,
    skip_damaged: Annotated[
        bool, typer.Option("--skip-damaged", help="Leave out images that can't be decoded.")
    ] = False,
    dtype: Annotated[
        str | None, typer.Option(help="tokens: type of the numbers in a .bin file. Default: uint16.")
    ] = None,
    sha256: Annotated[
        str | None, typer.Option(help="SHA-256 of the archive. Default: that of the official archive.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="synthetic: number of training images. Default: 8,192.")] = None,
    held_out: Annotated[
        int | None,
        typer.Option(
            help="synthetic: number of held-out images. Default: 2,048. text: number of held-out tokens. "
            "Default: a tenth."
        ),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(help="Shape of an image as the task gets it. Default: 3x224x224; of synthetic ones, 3x32x32."),
    ] = None,
    classes: Annotated[int | None, typer.Option(help="synthetic: number of classes. Default: 10.")] = None,
    seed: Annotated[int | None, typer.Option(help="synthetic: seed. Default: 0.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Replace a data set that exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a data set to the data folder, whole or not at all."""
    from trainjob.data.prepare import prepare as made
    from trainjob.data.sizes import parse_shape

    folder = made(
        name,
        _folder(cluster, data_dir),
        say=show.progress,
        shape=None if shape is None else parse_shape(shape),
        skip_damaged=skip_damaged or None,
        kind=kind,
        source=source,
        store=store,
        dtype=dtype,
        sha256=sha256,
        samples=samples,
        held_out=held_out,
        classes=classes,
        seed=seed,
        again=again,
    )
    if as_json:
        show.as_json({"name": name, "folder": str(folder)})
    else:
        typer.echo(f"prepared {name}: {folder}")


@command(app, "trainjob data list", "trainjob data list --cluster hpc --json")
def list_command(
    cluster: ClusterOfData = "local",
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """List the data sets that a run would find, including those that come with trainjob."""
    from trainjob.data.checking import list_prepared

    found = list_prepared(_folder(cluster, data_dir))
    if as_json:
        show.as_json([{**one._asdict(), "folder": str(one.folder)} for one in found])
        return
    body = []
    for one in found:
        samples = ", ".join(f"{split} {count:,}" for split, count in one.samples.items())
        body.append((one.name, samples, show.size(one.bytes), str(one.folder)))
    show.table(("NAME", "SAMPLES", "SIZE", "FOLDER"), body)


@command(app, "trainjob data check digits", "trainjob data check cifar10 --data-dir /shared/data")
def check(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A prepared data set.")],
    cluster: ClusterOfData = "local",
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Read every byte of a data set and compare it with its manifest."""
    from trainjob.data import manifest
    from trainjob.data.checking import check_folder

    where = _folder(cluster, data_dir)
    folder = manifest.find(name, where)
    if folder is None:
        raise manifest.not_prepared(name, where)
    if check_folder(folder).root:
        from trainjob.data.shards import open_data_set

        open_data_set(folder).check_sources()
    if as_json:
        show.as_json({"name": name, "folder": str(folder), "ok": True})
    else:
        typer.echo(f"{name} is sound: {folder}")


def _folder(cluster: str, folder: Path | None) -> Path:
    from trainjob.contract.errors import UserError
    from trainjob.contract.paths import expanded
    from trainjob.kinds.lookup import find

    if folder is not None:
        return folder
    known = find(cluster).cluster.data_dir
    if known is None:
        raise UserError(f"cluster {cluster} has no data_dir", "add one to its file, or give --data-dir FOLDER")
    return expanded(known)
