"""Preparing data sets: `trainjob data prepare NAME` puts NAME under the data folder, whole or not at all."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

from trainjob.contract.errors import UserError, did_you_mean
from trainjob.data.checking import check_folder, files_of
from trainjob.data.manifest import MADE_UP, PYTHON_DOCS, SHIPPED, Manifest, read_manifest
from trainjob.data.sizes import Sizes, describe
from trainjob.data.writing import write_data_set

Say = Callable[[str], None]


class Way(NamedTuple):
    """How a data set is made: `fill(staging folder, say, **options)` writes its files."""

    fill: Callable[..., Manifest]
    options: Tuple[str, ...] = ()


def _copy_shipped(staging: Path, say: Say) -> Manifest:  # noqa: ARG001 - every way is called alike
    manifest = check_folder(SHIPPED / "digits")
    for facts in files_of(manifest):
        shutil.copyfile(str(SHIPPED / "digits" / facts.file), str(staging / facts.file))
    return manifest


def _make_cifar10(staging: Path, say: Say, source: Any = None, sha256: Any = None) -> Manifest:
    from trainjob.data import cifar10

    return cifar10.fill(staging, source, sha256, say)


def _make_synthetic(staging: Path, say: Say, **sizes: Any) -> Manifest:  # noqa: ARG001
    from trainjob.data import synthetic

    return synthetic.fill(staging, Sizes(**sizes))


def _make_python_docs(staging: Path, say: Say) -> Manifest:  # noqa: ARG001
    from trainjob.data import tokens

    return tokens.fill_python_docs(staging)


# A new data set is a new row. What needs numpy imports it when it is called.
WAYS: Dict[str, Way] = {
    "digits": Way(_copy_shipped),
    "cifar10": Way(_make_cifar10, ("source", "sha256")),
    MADE_UP: Way(_make_synthetic, ("samples", "held_out", "shape", "classes", "seed")),
    PYTHON_DOCS: Way(_make_python_docs),
}


def _make_text(staging: Path, say: Say, name: str, origin: str, source: str, held_out: Any = None) -> Manifest:  # noqa: ARG001
    from trainjob.data import tokens

    return tokens.fill_text(staging, name, source, held_out, origin)


def _make_tokens(staging: Path, say: Say, name: str, origin: str, source: str, dtype: str = "uint16") -> Manifest:  # noqa: ARG001
    from trainjob.data import tokens

    return tokens.fill_files(staging, name, source, dtype, origin)


def _image_way(kind: str) -> Way:
    def make(staging: Path, say: Say, name: str, origin: str, source: str, **options: Any) -> Manifest:
        from trainjob.data import image_sets

        return image_sets.fill(staging, kind, source, image_sets.request(name, origin, say, **options))

    return Way(make, ("source", "store", "shape", "skip_damaged"))


# What a user's own data set may be made from, by --kind. Each `fill` also takes the name and the origin.
KINDS: Dict[str, Way] = {
    "text": Way(_make_text, ("source", "held_out")),
    "tokens": Way(_make_tokens, ("source", "dtype")),
    "imagefolder": _image_way("imagefolder"),
    "webdataset": _image_way("webdataset"),
    "parquet": _image_way("parquet"),
}
# Names of options on the command line.
FLAGS: Dict[str, str] = {"source": "--from", "held_out": "--held-out", "skip_damaged": "--skip-damaged"}


def prepare(
    name: str,
    data_dir: Path,
    again: bool = False,
    say: Say = lambda _line: None,
    kind: Optional[str] = None,
    **options: Any,
) -> Path:
    """Return the folder of data set `name` under `data_dir`, prepared unless it already is.

    `kind` says what a data set of the user's own is made from. `again` replaces an existing data set; `say` is called
    with the progress of long work; options that are None are not given. Raises UserError for a name or an option that
    is not known, DamagedData for a data set that is damaged.
    """
    given = {option: value for option, value in options.items() if value is not None}
    way = _way(name, given) if kind is None else _way_of_kind(name, kind, given)
    folder = data_dir / name
    prepared = None if again else read_manifest(folder)
    if kind is not None:
        given["source"] = os.path.abspath(os.path.expanduser(given["source"]))
        origin = _origin(kind, given)
        given.update(name=name, origin=origin)
    if prepared is None:
        _write(folder, lambda staging: way.fill(staging, say, **given), again)
    elif kind is not None:
        _refuse_other(folder, prepared, origin)
    elif name == MADE_UP and given:
        _refuse_other(folder, prepared, describe(Sizes(**given)))
    check_folder(folder)
    return folder


def _origin(kind: str, options: Dict[str, Any]) -> str:
    """Return what the manifest says of where the data comes from; equal where the options are."""
    others = ["%s %s" % (_flag(option), options[option]) for option in sorted(options) if option != "source"]
    return "; ".join(["%s in %s" % (kind, options["source"]), *others])


def _way_of_kind(name: str, kind: str, options: Dict[str, Any]) -> Way:
    way = KINDS.get(kind)
    if way is None:
        hint = did_you_mean(kind, KINDS)
        raise UserError("there is no kind %s of data" % kind, "%sthe kinds are %s" % (hint, ", ".join(sorted(KINDS))))
    if name in WAYS or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", name):
        raise UserError(
            "a data set of your own can't be called %s" % name,
            "choose a name of letters, digits, - and _, and none of %s" % ", ".join(WAYS),
        )
    if "source" not in options:
        raise UserError("%s is made from --kind %s, and no --from is given" % (name, kind), "give --from PATH")
    _refuse_other_options("--kind %s" % kind, way, options)
    return way


def _way(name: str, options: Dict[str, Any]) -> Way:
    way = WAYS.get(name)
    if way is None:
        hint = did_you_mean(name, WAYS)
        raise UserError(
            "there is no data set %s to prepare" % name,
            "%sthe data sets are %s; for one of your own, give --kind and --from" % (hint, ", ".join(sorted(WAYS))),
        )
    _refuse_other_options("data set %s" % name, way, options)
    return way


def _refuse_other_options(what: str, way: Way, options: Dict[str, Any]) -> None:
    for option in options:
        if option not in way.options:
            flags = ", ".join(_flag(known) for known in way.options) or "no options"
            raise UserError("%s has no option %s" % (what, _flag(option)), "it takes %s" % flags)


def _flag(option: str) -> str:
    return FLAGS.get(option, "--" + option)


def _write(folder: Path, fill: Callable[[Path], Manifest], replace: bool) -> None:
    try:
        write_data_set(folder, fill, replace)
    except OSError as error:
        raise UserError(
            "%s can't be written: %s" % (folder, error), "Give a folder that you may write to and that has space"
        ) from None
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise UserError(
            "preparing %s needs numpy, which %s does not have" % (folder.name, sys.executable),
            "pip install 'trainjob[train]'",
        ) from None


def _refuse_other(folder: Path, prepared: Manifest, requested: str) -> None:
    if prepared.source != requested:
        raise UserError(
            "%s already exists, %s, and the requested one is %s" % (folder, prepared.source, requested),
            "give --again to replace it",
        )
