"""The build context: our steps and wheel, what pip is asked for, and the user's wheelhouse. Nothing else goes in."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from trainjob.contract import package
from trainjob.contract.errors import UserError
from trainjob.images.wheel import requirements, write_wheel

KINDS = ("cpu", "cuda", "ipu")
# As the Makefile installs it.
TORCH = "torch==2.13.0"
_BESIDE_TORCH = ("numpy", "tqdm")
# A Poplar SDK image has torch and numpy; the bar of a run by hand is all that is missing.
_FOR_IPUS = "tqdm"


@dataclass(frozen=True)
class Ingredients:
    """What an image is made from, beside our own files. `wheelhouse` None: wheels come from the registry."""

    kind: str
    wheelhouse: Path | None = None
    torch: str = TORCH
    index_url: str | None = None


@contextmanager
def context(ingredients: Ingredients) -> Iterator[Path]:
    """Yield a folder to build in, which is gone afterwards. Raises UserError for what can't be built from."""
    _check(ingredients)
    with TemporaryDirectory(prefix="trainjob-image-") as name:
        folder = Path(name)
        _fill(folder, ingredients)
        yield folder


def check_kind(kind: str) -> None:
    """Raise UserError unless `kind` is one of our images."""
    if kind not in KINDS:
        raise UserError(f"image {kind!r} is not one of ours", f"give {', '.join(KINDS)}")


def _check(ingredients: Ingredients) -> None:
    check_kind(ingredients.kind)
    if ingredients.index_url and re.match(r"[a-z+]+://[^/]*@", ingredients.index_url):
        raise UserError(
            "--index-url holds a user name or a password, and a build would keep it",
            "download the wheels with pip and give the folder as --wheelhouse",
        )
    if ingredients.wheelhouse and not any(ingredients.wheelhouse.glob("*.whl")):
        raise UserError(
            f"--wheelhouse {ingredients.wheelhouse} holds no *.whl file",
            "fill it, with a pip of the image's version of Python: "
            f"pip download --dest {shlex.quote(str(ingredients.wheelhouse))} {_for_pip(ingredients)}",
        )


def _for_pip(ingredients: Ingredients) -> str:
    if ingredients.kind == "ipu":
        return _FOR_IPUS
    # torch stands among our requirements, too, for any version from 1.10 on.
    ours = [text for text in requirements() if not text.startswith("torch>")]
    return shlex.join([ingredients.torch, *ours])


def _fill(folder: Path, ingredients: Ingredients) -> None:
    ours = package.companion("containers")
    shutil.copy2(ours / ingredients.kind / "Dockerfile", folder)
    shutil.copy2(ours / "apptainer" / f"{ingredients.kind}.def", folder / "image.def")
    shutil.copytree(ours / "steps", folder / "steps")
    # Files of a wheel have no x bit.
    for step in (folder / "steps").iterdir():
        step.chmod(0o755)
    _copy_wheels(ingredients.wheelhouse, folder / "wheelhouse")
    wanted = [_FOR_IPUS] if ingredients.kind == "ipu" else [ingredients.torch, *_BESIDE_TORCH]
    (folder / "torch.txt").write_text("\n".join([*_source(ingredients), *wanted, ""]))
    if ingredients.kind == "ipu":
        _copy_runtime(folder / "runtime" / "trainjob")
        shutil.copy2(ours / "ipu" / "verify.py", folder)
    else:
        _add_package(folder, ingredients)


def _add_package(folder: Path, ingredients: Ingredients) -> None:
    (folder / "package").mkdir()
    wheel = write_wheel(folder / "package")
    # By its path: a registry may hold another project of this name.
    (folder / "package.txt").write_text("\n".join([*_wheelhouse(ingredients), f"./package/{wheel.name}[train]", ""]))


def _source(ingredients: Ingredients) -> list[str]:
    index = [f"--index-url {ingredients.index_url}"] if ingredients.index_url else []
    return _wheelhouse(ingredients) or index


def _wheelhouse(ingredients: Ingredients) -> list[str]:
    return ["--no-index", "--find-links wheelhouse"] if ingredients.wheelhouse else []


def _copy_wheels(wheelhouse: Path | None, target: Path) -> None:
    target.mkdir()
    # An engine copies no folder that is empty.
    (target / ".keep").touch()
    for wheel in sorted(wheelhouse.glob("*.whl")) if wheelhouse else ():
        _link_or_copy(wheel.resolve(), target / wheel.name)


def _link_or_copy(source: Path, target: Path) -> None:
    # torch's wheel is up to 1 GB: a second name costs nothing where both lie on one disk.
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _copy_runtime(target: Path) -> None:
    ignore = shutil.ignore_patterns("__pycache__")
    target.mkdir(parents=True)
    shutil.copy2(package.folder() / "__init__.py", target)
    for name in package.RUNTIME_PACKAGES:
        shutil.copytree(package.folder() / name, target / name, ignore=ignore)
