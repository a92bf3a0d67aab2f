"""The command lines of container engines: one builds an image in a context, one runs an image by hand."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainjob.backends.containers import identity
from trainjob.contract.errors import UserError
from trainjob.contract.paths import with_home
from trainjob.images.context import Ingredients, context
from trainjob.machines import process
from trainjob.render.container import device_flags, variables

# image of ours -> what it trains on
ACCELERATORS = {"cpu": "cpu", "cuda": "gpu", "ipu": "ipu"}
_PROJECT = "/project"
_IPUOF = "/ipuof"


# -- building ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Build:
    """An image to build: its parts, engine and name. `base` None: the one that the Dockerfile names."""

    ingredients: Ingredients
    engine: str
    name: str
    base: str | None = None
    network: str | None = None
    archive: Path | None = None


def build(image: Build, *, to_stderr: bool = False) -> None:
    """Build the image; what the engine prints goes to the terminal. Raises UserError when it fails."""
    with context(image.ingredients) as folder:
        code = process.show(build_command(image), folder=folder, to_stderr=to_stderr)
    if code != 0:
        raise UserError(
            f"{image.engine} exited with {code}, so image {image.name} is not built", "Its last lines say why"
        )
    if image.archive is not None:
        process.run([image.engine, "save", "--output", str(image.archive), image.name], timeout_s=3600.0)


def build_command(image: Build) -> list[str]:
    """Return the engine's command line, for a context as its working folder."""
    base = [] if image.base is None else ["--build-arg", f"BASE={image.base}"]
    if image.engine == "apptainer":
        if image.base is not None and Path(image.base).exists():
            # A file of Apptainer's, or an unpacked image: sites without a way to a registry have these.
            base = ["--build-arg", "BOOTSTRAP=localimage", "--build-arg", f"BASE={Path(image.base).absolute()}"]
        return ["apptainer", "build", *base, str(Path(image.name).absolute()), "image.def"]
    network = [] if image.network is None else ["--network", image.network]
    # Podman's own format of images has no health check.
    layout = ["--format", "docker"] if image.engine == "podman" else []
    return [image.engine, "build", *layout, "--tag", image.name, *base, *network, "."]


def default_name(kind: str, engine: str) -> str:
    """Return the default name of an image: a reference, or Apptainer's file."""
    return f"trainjob-{kind}.sif" if engine == "apptainer" else f"trainjob:{kind}"


def digest(image: Build) -> str | None:
    """Return the sha256 of a built image; None for Apptainer's file, which has no other name than its own."""
    return None if image.engine == "apptainer" else identity(image.engine, image.name)


def next_command(image: Build) -> str:
    """Return the command that shows that the image works."""
    if image.engine == "apptainer":
        return f"apptainer run {image.name}"
    return f"{image.engine} run --rm {image.name}"


# -- running by hand: as this user, in this folder, with its accelerators ----------------------


@dataclass(frozen=True)
class Caller:
    """The facts that the command line depends on: who runs it, where, and what this machine has."""

    folder: Path
    user: int
    group: int
    has_terminal: bool
    environ: Mapping[str, str]
    home: Path
    devices: Path = Path("/dev")


def caller() -> Caller:
    """Return the facts of this process and machine."""
    has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return Caller(Path.cwd(), os.getuid(), os.getgid(), has_terminal, os.environ, with_home("~"))


def run_command(kind: str, engine: str, image: str, words: Sequence[str], at: Caller) -> list[str]:
    """Return the engine's command line. Raises UserError for an IPU image where nothing says how to reach IPUs."""
    by_id = engine != "podman" or at.user == 0
    return [
        *(engine, "run", "--rm"),
        *(("--interactive", "--tty") if at.has_terminal else ()),
        *(("--user", f"{at.user}:{at.group}") if by_id else ("--userns", "keep-id")),
        *(("--volume", f"{at.folder}:{_PROJECT}") if words else ()),
        *_accelerators(kind, engine, at),
        image,
        *words,
    ]


def _accelerators(kind: str, engine: str, at: Caller) -> list[str]:
    flags = list(device_flags(engine, ACCELERATORS[kind]))
    if kind == "cuda":
        return ["--ipc", "host", *flags]
    if kind != "ipu":
        return flags
    cards = sorted(at.devices.glob("ipu[0-9]*"))
    if not (at.devices / "infiniband").is_dir():
        # IPUs on cards in this very machine: there is no fabric, and each has four device files.
        flags = [*flags[: flags.index("--device")], *(word for card in cards for word in ("--device", str(card)))]
    return ["--network", "host", "--ipc", "host", *flags, *_fabric(at, has_cards=bool(cards))]


def _fabric(at: Caller, *, has_cards: bool) -> list[str]:
    """Return how the container learns its partition: from the V-IPU variables, else from the user's IPUoF file."""
    if names := [name for name in variables("ipu") if name.startswith("IPUOF_") and at.environ.get(name)]:
        return [word for name in names for word in ("--env", name)]
    named = at.environ.get("IPUOF_CONFIG_PATH")
    files = [Path(named)] if named else sorted((at.home / ".ipuof.conf.d").glob("*.conf"))
    if len(files) > 1:
        listed = ", ".join(path.name for path in files)
        raise UserError(f"~/.ipuof.conf.d has several files ({listed})", "set IPUOF_CONFIG_PATH to the one to use")
    if files:
        inside = f"IPUOF_CONFIG_PATH={_IPUOF}/{files[0].name}"
        return ["--volume", f"{files[0].parent}:{_IPUOF}:ro", "--env", inside]
    if not has_cards:
        raise UserError(
            "nothing says how to reach IPUs from here",
            "set IPUOF_VIPU_API_HOST and IPUOF_VIPU_API_PARTITION_ID, or have `vipu create partition` write a file "
            "into ~/.ipuof.conf.d",
        )
    return []
