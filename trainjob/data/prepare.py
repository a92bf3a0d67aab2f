"""Preparing data sets: `trainjob data prepare NAME` puts NAME under the data folder, whole or not at all."""

from __future__ import annotations

import difflib
import shutil
import sys
from pathlib import Path
from typing import Any, Callable, Dict, NamedTuple, Tuple

from trainjob.contract.errors import UserError
from trainjob.contract.manifest import MADE_UP, SHIPPED, Manifest, read_manifest
from trainjob.data.checking import check_folder, files_of
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


# A new data set is a new row. What needs numpy imports it when it is called.
WAYS: Dict[str, Way] = {
    "digits": Way(_copy_shipped),
    "cifar10": Way(_make_cifar10, ("source", "sha256")),
    MADE_UP: Way(_make_synthetic, ("samples", "held_out", "shape", "classes", "seed")),
}
# As they are asked for on the command line.
FLAGS: Dict[str, str] = {"source": "--from", "held_out": "--held-out"}


def prepare(name: str, data_dir: Path, again: bool = False, say: Say = lambda _line: None, **options: Any) -> Path:
    """Return the folder of data set `name` under `data_dir`, prepared unless it already is.

    `again` replaces what is there; `say` is told how long work goes on; options that are None are not given.
    Raises UserError for a name or an option that is not known, DamagedData for a data set that is damaged.
    """
    given = {option: value for option, value in options.items() if value is not None}
    way = _way(name, given)
    folder = data_dir / name
    prepared = None if again else read_manifest(folder)
    if prepared is None:
        _write(folder, lambda staging: way.fill(staging, say, **given), again)
    elif name == MADE_UP and given:
        _refuse_other_sizes(folder, prepared, given)
    check_folder(folder)
    return folder


def _way(name: str, given: Dict[str, Any]) -> Way:
    way = WAYS.get(name)
    if way is None:
        near = difflib.get_close_matches(name, WAYS, 1)
        hint = "did you mean %s? " % near[0] if near else ""
        raise UserError("there is no data set %s to prepare: %sknown are %s" % (name, hint, ", ".join(sorted(WAYS))))
    for option in given:
        if option not in way.options:
            flags = ", ".join(_flag(known) for known in way.options) or "no options"
            raise UserError("data set %s has no option %s: it takes %s" % (name, _flag(option), flags))
    return way


def _flag(option: str) -> str:
    return FLAGS.get(option, "--" + option)


def _write(folder: Path, fill: Callable[[Path], Manifest], replace: bool) -> None:
    try:
        write_data_set(folder, fill, replace)
    except OSError as error:
        raise UserError(
            "%s can't be written: %s. Give a folder with room that you may write to" % (folder, error)
        ) from None
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise UserError(
            "preparing %s needs numpy, which %s does not have: pip install 'trainjob[train]'"
            % (folder.name, sys.executable)
        ) from None


def _refuse_other_sizes(folder: Path, prepared: Manifest, given: Dict[str, Any]) -> None:
    asked = describe(Sizes(**given))
    if prepared.source != asked:
        raise UserError(
            "%s is already there, %s, and asked for is one %s: give --again to replace it"
            % (folder, prepared.source, asked)
        )
