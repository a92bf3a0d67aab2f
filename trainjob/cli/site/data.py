"""trainjob data: prepare, list and check data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from trainjob.cli.command import PATH, Group, cluster_option, json_option
from trainjob.watch import show

_cluster_option = cluster_option("Cluster whose data_dir is used.", default="local")
_folder_option = click.option("--data-dir", type=PATH, help="Folder of data sets, in place of the cluster's.")


@click.group(cls=Group)
def data() -> None:
    """Prepare, list and check data sets."""


@data.command(
    examples=[
        "trainjob data prepare cifar10 --data-dir /shared/data",
        "trainjob data prepare novels --kind text --from ~/texts",
    ]
)
@click.argument("name", metavar="NAME", help="digits | cifar10 | synthetic | python-docs, or a name of yours.")
@_cluster_option
@_folder_option
@click.option(
    "--kind", help="What a data set of your own is made from: imagefolder | webdataset | parquet | text | tokens."
)
@click.option(
    "--from",
    "source",
    metavar="PATH-or-URL",
    help="What a data set of your own is made from. cifar10: its archive, cifar-10-python.tar.gz.",
)
@click.option(
    "--store",
    help="How images are stored: resized (uint8, the default), packed (as they are, in one file), or index "
    "(they stay where they are).",
)
@click.option("--skip-damaged", is_flag=True, help="Leave out images that can't be decoded.")
@click.option("--dtype", help="tokens: type of the numbers in a .bin file. Default: uint16.")
@click.option("--sha256", help="SHA-256 of the archive. Default: that of the official archive.")
@click.option("--samples", type=int, help="synthetic: number of training images. Default: 8,192.")
@click.option(
    "--held-out",
    type=int,
    help="synthetic: number of held-out images. Default: 2,048. text: number of held-out tokens. Default: a tenth.",
)
@click.option("--shape", help="Shape of an image as the task gets it. Default: 3x224x224; of synthetic ones, 3x32x32.")
@click.option("--classes", type=int, help="synthetic: number of classes. Default: 10.")
@click.option("--seed", type=int, help="synthetic: seed. Default: 0.")
@click.option("--again", is_flag=True, help="Replace a data set that exists.")
@json_option
def prepare(
    name: str, cluster: str, data_dir: Path | None, shape: str | None, skip_damaged: bool, as_json: bool, **options: Any
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
        **options,
    )
    if as_json:
        show.as_json({"name": name, "folder": str(folder)})
    else:
        click.echo(f"prepared {name}: {folder}")


@data.command(examples=["trainjob data list", "trainjob data list --cluster hpc --json"])
@_cluster_option
@_folder_option
@json_option
def list_command(cluster: str, data_dir: Path | None, as_json: bool) -> None:
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


@data.command(examples=["trainjob data check digits", "trainjob data check cifar10 --data-dir /shared/data"])
@click.argument("name", metavar="NAME", help="A prepared data set.")
@_cluster_option
@_folder_option
@json_option
def check(name: str, cluster: str, data_dir: Path | None, as_json: bool) -> None:
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
        click.echo(f"{name} is sound: {folder}")


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
