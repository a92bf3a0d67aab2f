"""The build context: our steps and package, the requirements for pip, the user's wheelhouse, and nothing else."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

from trainjob.contract import package
from trainjob.contract.errors import UserError

KINDS = ("cpu", "cuda", "ipu")
# As the Makefile installs it.
TORCH = "torch==2.13.0"
_BESIDE_TORCH = ("numpy", "tqdm")
# A Poplar SDK image has torch and numpy; the bar of a run by hand is all that is missing.
_FOR_IPUS = "tqdm"


@dataclass(frozen=True)
class Ingredients:
    """The parts of an image that are not our own files. `wheelhouse` None: wheels come from the registry."""

    kind: str
    wheelhouse: Path | None = None
    torch: str = TORCH
    index_url: str | None = None


@contextmanager
def context(ingredients: Ingredients) -> Iterator[Path]:
    """Yield a folder to build in, which is gone afterwards. Raises UserError for what can't be built from."""
    check_kind(ingredients.kind)
    wheelhouse = ingredients.wheelhouse
    if ingredients.index_url and re.match(r"[a-z+]+://[^/]*@", ingredients.index_url):
        raise UserError(
            "--index-url holds a user name or a password, and a build would keep it",
            "download the wheels with pip and give the folder as --wheelhouse",
        )
    if wheelhouse and not any(wheelhouse.glob("*.whl")):
        for_pip = [_FOR_IPUS] if ingredients.kind == "ipu" else [ingredients.torch, *_requirements(but="torch")]
        raise UserError(
            f"--wheelhouse {wheelhouse} holds no *.whl file",
            "fill it, with a pip of the image's version of Python: "
            f"pip download --dest {shlex.quote(str(wheelhouse))} {shlex.join(for_pip)}",
        )
    with TemporaryDirectory(prefix="trainjob-image-") as name:
        folder = Path(name)
        _copy_steps(ingredients.kind, folder)
        _copy_wheels(wheelhouse, folder / "wheelhouse")
        source = ["--no-index", "--find-links wheelhouse"] if wheelhouse else []
        index = [f"--index-url {ingredients.index_url}"] if ingredients.index_url and not wheelhouse else []
        if ingredients.kind == "ipu":
            wanted = [_FOR_IPUS]
            copy_package(folder / "runtime" / "trainjob", package.RUNTIME_PACKAGES)
        else:
            wanted = [ingredients.torch, *_BESIDE_TORCH]
            copy_package(folder / "package" / "trainjob")
            (folder / "package.txt").write_text("\n".join([*source, *_requirements(), ""]))
        (folder / "torch.txt").write_text("\n".join([*source, *index, *wanted, ""]))
        yield folder


def check_kind(kind: str) -> None:
    """Raise UserError unless `kind` is one of our images."""
    if kind not in KINDS:
        raise UserError(f"image {kind!r} is not one of ours", f"give {', '.join(KINDS)}")


def copy_package(target: Path, parts: Sequence[str] = ()) -> None:
    """Copy `parts` of the running package to `target`; without any, all of it, as an installation would have it.

    The files are the same from a clone and from an installation, so that the engine's cache holds.
    """
    ignore = shutil.ignore_patterns("__pycache__")
    if parts:
        target.mkdir(parents=True)
        shutil.copy2(package.folder() / "__init__.py", target)
        for name in parts:
            shutil.copytree(package.folder() / name, target / name, ignore=ignore)
        return
    shutil.copytree(package.folder(), target, ignore=ignore)
    shutil.copytree(package.folder().with_name("batchfiles"), target.with_name("batchfiles"), ignore=ignore)
    for name in package.COMPANIONS:
        shutil.copytree(package.companion(name), target / name, ignore=ignore, dirs_exist_ok=True)
    # What importlib.metadata reads; without the README, whose changes would build every image again.
    installed = _distribution()
    facts = target.with_name(f"trainjob-{installed.version}.dist-info")
    facts.mkdir()
    (facts / "METADATA").write_text((installed.read_text("METADATA") or "").partition("\n\n")[0] + "\n")
    (facts / "LICENSE").write_text(installed.read_text("licenses/LICENSE") or "")


def _distribution() -> metadata.Distribution:
    try:
        return metadata.distribution("trainjob")
    except metadata.PackageNotFoundError:
        raise UserError(
            "trainjob runs from sources that are not installed, so what it needs is not known", "run: pip install -e ."
        ) from None


def _requirements(but: str | None = None) -> list[str]:
    """Return what pip installs beside us where ranks train, without `but`: our own needs and those of extra `train`."""
    wanted = (text.partition(";") for text in _distribution().requires or ())
    names = [name.strip() for name, _, marker in wanted if not marker or "'train'" in marker or '"train"' in marker]
    return [name for name in names if re.split("[<>=]", name)[0] != but]


def _copy_steps(kind: str, folder: Path) -> None:
    ours = package.companion("containers")
    shutil.copy2(ours / kind / "Dockerfile", folder)
    shutil.copy2(ours / "apptainer" / f"{kind}.def", folder / "image.def")
    shutil.copytree(ours / "steps", folder / "steps")
    # Files of a wheel have no x bit.
    for step in (folder / "steps").iterdir():
        step.chmod(0o755)
    if kind == "ipu":
        shutil.copy2(ours / "ipu" / "verify.py", folder)


def _copy_wheels(wheelhouse: Path | None, target: Path) -> None:
    target.mkdir()
    # An engine copies no folder that is empty.
    (target / ".keep").touch()
    for wheel in sorted(wheelhouse.glob("*.whl")) if wheelhouse else ():
        # torch's wheel is up to 1 GB: a second name costs nothing where both are on one disk.
        try:
            os.link(wheel.resolve(), target / wheel.name)
        except OSError:
            shutil.copy2(wheel, target / wheel.name)
