"""The containers of a run on this machine: which image they are, and that none is left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainjob.contract.files import read_json
from trainjob.contract.paths import RunPaths
from trainjob.submit import process
from trainjob.submit.base import NotSubmittedError
from trainjob.submit.process import CommandError

if TYPE_CHECKING:
    from trainjob.cluster.common import Container
    from trainjob.render.request import Request

# As templates/parts/container.sh.j2 marks them.
_LABEL = "trainjob.run"
RUNTIMES = ("docker", "podman")


def image_digest(paths: RunPaths) -> str | None:
    """Return the sha256 of the image that a run on this machine uses; None for a run without containers.

    It is the registry's digest, with the image's name, or the id of an image that is only here. Raises
    NotSubmittedError when the engine does not have the image.
    """
    asked = _asked(paths)
    try:
        return None if asked is None else identity(asked["runtime"], asked["image"])
    except CommandError as error:
        raise NotSubmittedError(str(error)) from None


def identity(engine: str, image: str) -> str:
    """Return the sha256 by which `engine` knows `image`. Raises CommandError when it does not have it."""
    shown = process.run([engine, "image", "inspect", "--format", "{{json .RepoDigests}}{{.Id}}", image])
    digests, _, identifier = shown.text.strip().rpartition("]")
    first = digests.strip("[ ").partition(",")[0].strip('"')
    # Podman leaves the algorithm out.
    return first if "@" in first else "sha256:" + identifier.removeprefix("null").removeprefix("sha256:")


def find(request: Request) -> Container | None:
    """Return what a job on this machine says of its containers; None where it runs without."""
    asked = request.cluster.container
    return asked if request.cluster.kind == "local" and asked.runtime in RUNTIMES else None


def has_image(asked: Container) -> bool:
    """Return whether the engine has the image; nothing is downloaded when a run starts."""
    return process.run([asked.runtime, "image", "inspect", str(asked.image)], check=False).code == 0


def has_torch(asked: Container, interpreter: str | None) -> bool:
    """Return whether the image's interpreter finds torch, by asking one container that is gone afterwards."""
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    within = ["--rm", "--network", "none", "--pull", "never", "--entrypoint", interpreter or "python3"]
    return process.run([asked.runtime, "run", *within, str(asked.image), "-c", look], check=False).code == 0


def remove(paths: RunPaths) -> None:
    """End and remove every container of a run, whatever state it is in; an engine that is gone has none."""
    asked = _asked(paths)
    if asked is None:
        return
    engine = asked["runtime"]
    try:
        listed = process.run(
            [engine, "ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={_LABEL}={paths.folder}"]
        )
        found = listed.text.split()
        if found:
            process.run([engine, "rm", "--force", *found], check=False)
    except CommandError:
        return


def _asked(paths: RunPaths) -> dict[str, Any] | None:
    job: Any = read_json(paths.job)
    try:
        cluster = job["asked"]["cluster"]["file"]
        asked: dict[str, Any] = cluster.get("container") or {}
    except (TypeError, KeyError):
        return None
    is_here = cluster.get("kind") == "local" and asked.get("runtime") in RUNTIMES
    return asked if is_here else None
