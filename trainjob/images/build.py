"""The command lines that build an image in a context."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainjob.contract.errors import UserError
from trainjob.images.context import Ingredients, context
from trainjob.submit import process
from trainjob.submit.containers import identity


@dataclass(frozen=True)
class Build:
    """What is built, by whom, under which name. `base` None: the one that the Dockerfile names."""

    ingredients: Ingredients
    engine: str
    name: str
    base: str | None = None
    network: str | None = None
    archive: Path | None = None


def build(asked: Build, *, to_stderr: bool = False) -> None:
    """Build the image; what the engine prints goes to the terminal. Raises UserError when it fails."""
    with context(asked.ingredients) as folder:
        code = process.show(argv(asked), folder=folder, to_stderr=to_stderr)
    if code != 0:
        raise UserError(f"{asked.engine} exited with {code}: image {asked.name} is not built. Its last lines say why")
    if asked.archive is not None:
        process.run([asked.engine, "save", "--output", str(asked.archive), asked.name], timeout_s=3600.0)


def argv(asked: Build) -> list[str]:
    """Return the engine's command line, for a context as its working folder."""
    base = [] if asked.base is None else ["--build-arg", f"BASE={asked.base}"]
    if asked.engine == "apptainer":
        return ["apptainer", "build", *base, str(Path(asked.name).absolute()), "image.def"]
    network = [] if asked.network is None else ["--network", asked.network]
    return [asked.engine, "build", "--tag", asked.name, *base, *network, "."]


def default_name(kind: str, engine: str) -> str:
    """Return what an image is called unless the user says: a reference, or Apptainer's file."""
    return f"trainjob-{kind}.sif" if engine == "apptainer" else f"trainjob:{kind}"


def digest(asked: Build) -> str | None:
    """Return the sha256 of a built image; None for Apptainer's file, which has no other name than its own."""
    return None if asked.engine == "apptainer" else identity(asked.engine, asked.name)


def next_command(asked: Build) -> str:
    """Return what shows that the image works."""
    if asked.engine == "apptainer":
        return f"apptainer run {asked.name}"
    return f"{asked.engine} run --rm {asked.name}"
