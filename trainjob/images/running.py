"""The command line that runs one of our images by hand: as this user, in this folder, with its accelerators."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainjob.contract.errors import UserError
from trainjob.render.container import device_flags, variables

# image of ours -> what it trains on
ACCELERATORS = {"cpu": "cpu", "cuda": "gpu", "ipu": "ipu"}
_PROJECT = "/project"
_IPUOF = "/ipuof"


@dataclass(frozen=True)
class Here:
    """What the command line depends on: who runs it, where, and what this machine has."""

    folder: Path
    user: int
    group: int
    has_terminal: bool
    environ: Mapping[str, str]
    home: Path
    devices: Path = Path("/dev")


def here() -> Here:
    """Return the facts of this process and machine."""
    has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return Here(Path.cwd(), os.getuid(), os.getgid(), has_terminal, os.environ, Path.home())


def argv(kind: str, engine: str, image: str, words: Sequence[str], at: Here) -> list[str]:
    """Return the engine's command line. Raises UserError for an IPU image where nothing says how to reach IPUs."""
    terminal = ["--interactive", "--tty"] if at.has_terminal else []
    project = ["--volume", f"{at.folder}:{_PROJECT}"] if words else []
    return [
        engine,
        "run",
        "--rm",
        *terminal,
        *_user(engine, at),
        *project,
        *_accelerators(kind, engine, at),
        image,
        *words,
    ]


def _user(engine: str, at: Here) -> list[str]:
    if engine == "podman":
        return [] if at.user == 0 else ["--userns", "keep-id"]
    return ["--user", f"{at.user}:{at.group}"]


def _accelerators(kind: str, engine: str, at: Here) -> list[str]:
    flags = list(device_flags(engine, ACCELERATORS[kind]))
    if kind == "cuda":
        return ["--ipc", "host", *flags]
    if kind == "ipu":
        return ["--network", "host", "--ipc", "host", *_ipu_devices(flags, at), *_fabric(at)]
    return flags


def _ipu_devices(flags: list[str], at: Here) -> list[str]:
    if (at.devices / "infiniband").is_dir():
        return flags
    # IPUs on cards in this very machine: there is no fabric, and each has four device files.
    cards = sorted(at.devices.glob("ipu[0-9]*"))
    return [*flags[: flags.index("--device")], *(word for card in cards for word in ("--device", str(card)))]


def _fabric(at: Here) -> Iterator[str]:
    """Yield how the container learns its partition: from the V-IPU variables, else from the user's IPUoF file."""
    names = [name for name in variables("ipu") if name.startswith("IPUOF_") and at.environ.get(name)]
    configuration = _configuration(at)
    if names:
        yield from (word for name in names for word in ("--env", name))
    elif configuration is not None:
        yield from ("--volume", f"{configuration.parent}:{_IPUOF}:ro")
        yield from ("--env", f"IPUOF_CONFIG_PATH={_IPUOF}/{configuration.name}")
    elif not list(at.devices.glob("ipu[0-9]*")):
        raise UserError(
            "nothing says how to reach IPUs from here: set IPUOF_VIPU_API_HOST and IPUOF_VIPU_API_PARTITION_ID, or "
            "have `vipu create partition` write a file into ~/.ipuof.conf.d"
        )


def _configuration(at: Here) -> Path | None:
    asked = at.environ.get("IPUOF_CONFIG_PATH")
    if asked:
        return Path(asked)
    found = sorted((at.home / ".ipuof.conf.d").glob("*.conf"))
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise UserError(f"~/.ipuof.conf.d has {names}: set IPUOF_CONFIG_PATH to the one that is meant")
    return found[0] if found else None
