"""Prepares data sets: `trainjob data prepare NAME` puts NAME under the data folder, whole or not at all."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Tuple

from trainjob.contract.errors import UserError, did_you_mean
from trainjob.contract.paths import with_home
from trainjob.data.checking import Say, check_folder, files_of
from trainjob.data.manifest import MADE_UP, PYTHON_DOCS, SHIPPED, Manifest, read_manifest
from trainjob.data.sizes import Sizes, describe
from trainjob.data.writing import write_data_set


class Way(NamedTuple):
    """The function of a module that makes a data set, called as fill(staging folder, say, **options).

    Modules that need numpy are loaded when they are called.
    """

    module: str
    function: str
    options: Tuple[str, ...] = ()

    def fill(self, staging: Path, say: Say, given: Mapping[str, object]) -> Manifest:
        """Write the files of the data set."""
        module = importlib.import_module("trainjob.data." + self.module)
        manifest: Manifest = getattr(module, self.function)(staging, say, **given)
        return manifest


# A new data set is a new row.
WAYS: Dict[str, Way] = {
    "digits": Way("prepare", "copy_shipped"),
    "cifar10": Way("cifar10", "fill", ("source", "sha256")),
    MADE_UP: Way("synthetic", "fill", ("samples", "held_out", "shape", "classes", "seed")),
    PYTHON_DOCS: Way("tokens", "fill_python_docs"),
}
_IMAGES = Way("image_sets", "fill", ("source", "store", "shape", "skip_damaged"))
# Sources of a user's own data set, by --kind. Each `fill` also takes the name and the origin, that of images the kind.
KINDS: Dict[str, Way] = {
    "text": Way("tokens", "fill_text", ("source", "held_out")),
    "tokens": Way("tokens", "fill_files", ("source", "dtype")),
    "imagefolder": _IMAGES,
    "webdataset": _IMAGES,
    "parquet": _IMAGES,
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
    is not known, DamagedDataError for a data set that is damaged.
    """
    given = {option: value for option, value in options.items() if value is not None}
    way = _way(name, given) if kind is None else _way_of_kind(name, kind, given)
    folder = data_dir / name
    prepared = None if again else read_manifest(folder)
    origin = describe(Sizes(**given)) if name == MADE_UP and given else None
    if kind is not None:
        source = given["source"] = os.path.abspath(with_home(given["source"]))
        # Equal where the options are.
        others = ["%s %s" % (_flag(option), given[option]) for option in sorted(given) if option != "source"]
        origin = "; ".join(["%s in %s" % (kind, source), *others])
        given.update(name=name, origin=origin, **({"kind": kind} if way is _IMAGES else {}))
    if prepared is None:
        _write(folder, lambda staging: way.fill(staging, say, given), again)
    elif origin is not None and prepared.source != origin:
        raise UserError(
            "%s already exists, %s, and the requested one is %s" % (folder, prepared.source, origin),
            "give --again to replace it",
        )
    check_folder(folder)
    return folder


def copy_shipped(staging: Path, say: Say) -> Manifest:  # noqa: ARG001 - every way is called alike
    """Copy the digits, which come with the package."""
    manifest = check_folder(SHIPPED / "digits")
    for facts in files_of(manifest):
        shutil.copyfile(str(SHIPPED / "digits" / facts.file), str(staging / facts.file))
    return manifest


def _way_of_kind(name: str, kind: str, options: Mapping[str, object]) -> Way:
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


def _way(name: str, options: Mapping[str, object]) -> Way:
    way = WAYS.get(name)
    if way is None:
        hint = did_you_mean(name, WAYS)
        raise UserError(
            "there is no data set %s to prepare" % name,
            "%sthe data sets are %s; for one of your own, give --kind and --from" % (hint, ", ".join(sorted(WAYS))),
        )
    _refuse_other_options("data set %s" % name, way, options)
    return way


def _refuse_other_options(what: str, way: Way, options: Mapping[str, object]) -> None:
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
            "%s -m pip install numpy" % sys.executable,
        ) from None
