"""trainjob data: prepare, list and check data sets."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated, Any

import typer

from trainjob.cli import complete
from trainjob.cli.app import examples, new
from trainjob.watch import show

app = new(no_args_is_help=True, help="Prepare, list and check data sets.")

Cluster = Annotated[
    str, typer.Option("--cluster", "-c", help="Cluster whose data_dir is used.", autocompletion=complete.clusters)
]
Folder = Annotated[Path | None, typer.Option("--data-dir", help="Folder of data sets, in place of the cluster's.")]


_Source = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="PATH-or-URL",
        help="What a data set of your own is made from. cifar10: its archive, cifar-10-python.tar.gz.",
    ),
]
_Kind = Annotated[
    str | None,
    typer.Option(
        "--kind", help="What a data set of your own is made from: imagefolder | webdataset | parquet | text | tokens."
    ),
]
_Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="How images are stored: resized (uint8, the default), packed (as they are, in one file), or index "
        "(they stay where they are).",
    ),
]
_SkipDamaged = Annotated[bool, typer.Option("--skip-damaged", help="Leave out images that can't be decoded.")]
_Dtype = Annotated[
    str | None, typer.Option("--dtype", help="tokens: type of the numbers in a .bin file. Default: uint16.")
]
_Sha256 = Annotated[
    str | None, typer.Option("--sha256", help="SHA-256 of the archive. Default: that of the official archive.")
]
_HeldOut = Annotated[
    int | None,
    typer.Option(
        "--held-out",
        help="synthetic: number of held-out images. Default: 2,048. text: number of held-out tokens. Default: a tenth.",
    ),
]
_Samples = Annotated[
    int | None, typer.Option("--samples", help="synthetic: number of training images. Default: 8,192.")
]
_Shape = Annotated[
    str | None,
    typer.Option(
        "--shape", help="Shape of an image as the task gets it. Default: 3x224x224; of synthetic ones, 3x32x32."
    ),
]
_Classes = Annotated[int | None, typer.Option("--classes", help="synthetic: number of classes. Default: 10.")]
_Seed = Annotated[int | None, typer.Option("--seed", help="synthetic: seed. Default: 0.")]


@app.command(
    epilog=examples(
        "trainjob data prepare cifar10 --data-dir /shared/data",
        "trainjob data prepare novels --kind text --from ~/texts",
    )
)
def prepare(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="digits | cifar10 | synthetic | python-docs, or a name of yours.")
    ],
    cluster: Cluster = "local",
    data_dir: Folder = None,
    kind: _Kind = None,
    source: _Source = None,
    store: _Store = None,
    skip_damaged: _SkipDamaged = False,
    dtype: _Dtype = None,
    sha256: _Sha256 = None,
    samples: _Samples = None,
    held_out: _HeldOut = None,
    shape: _Shape = None,
    classes: _Classes = None,
    seed: _Seed = None,
    again: Annotated[bool, typer.Option("--again", help="Replace a data set that exists.")] = False,
    as_json: show.AsJson = False,
) -> None:
    """Write a data set to the data folder, whole or not at all."""
    from trainjob.data.prepare import prepare as made
    from trainjob.data.sizes import parse_shape

    options: dict[str, Any] = {"kind": kind, "source": source, "store": store, "dtype": dtype, "sha256": sha256}
    options |= {"skip_damaged": skip_damaged or None, "samples": samples, "held_out": held_out}
    options |= {"shape": None if shape is None else parse_shape(shape), "classes": classes, "seed": seed}
    folder = made(name, _folder(cluster, data_dir), again=again, say=functools.partial(typer.echo, err=True), **options)
    if as_json:
        show.as_json({"name": name, "folder": str(folder)})
    else:
        typer.echo(f"prepared {name}: {folder}")


@app.command(
    "list",
    epilog=examples(
        "trainjob data list",
        "trainjob data list --cluster hpc --json",
    ),
)
def list_data(cluster: Cluster = "local", data_dir: Folder = None, as_json: show.AsJson = False) -> None:
    """List the data sets that a run would find, including those that come with trainjob."""
    from trainjob.data.checking import list_prepared

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


@app.command(
    epilog=examples(
        "trainjob data check digits",
        "trainjob data check cifar10 --data-dir /shared/data",
    )
)
def check(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A prepared data set.")],
    cluster: Cluster = "local",
    data_dir: Folder = None,
    as_json: show.AsJson = False,
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
