"""The containers of a run on this machine: which image they are, and that none is left behind."""

from __future__ import annotations

from typing import Any

from trainjob.contract.files import read_json
from trainjob.contract.paths import RunPaths
from trainjob.submit import process
from trainjob.submit.process import CommandError

# As templates/parts/container.sh.j2 marks them.
_LABEL = "trainjob.run"
RUNTIMES = ("docker", "podman")


def image_digest(paths: RunPaths) -> str | None:
    """Return the sha256 of the image that a run on this machine uses; None for a run without containers.

    It is the registry's digest, with the image's name, or the id of an image that is only here. Raises CommandError
    when the engine does not have the image.
    """
    asked = _asked(paths)
    return None if asked is None else identity(asked["runtime"], asked["image"])


def identity(engine: str, image: str) -> str:
    """Return the sha256 by which `engine` knows `image`. Raises CommandError when it does not have it."""
    shown = process.run([engine, "image", "inspect", "--format", "{{json .RepoDigests}}{{.Id}}", image])
    digests, _, identifier = shown.text.strip().rpartition("]")
    first = digests.strip("[ ").partition(",")[0].strip('"')
    return first if "@" in first else identifier.removeprefix("null")


def remove(paths: RunPaths) -> None:
    """End and remove every container of a run, whatever state it is in; an engine that is gone has none."""
    asked = _asked(paths)
    if asked is None:
        return
    engine = asked["runtime"]
    try:
        listed = process.run([engine, "ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={_LABEL}={paths.folder}"])
        found = listed.text.split()
        if found:
            process.run([engine, "rm", "--force", *found], check=False)
    except CommandError:
        return


def _asked(paths: RunPaths) -> dict[str, Any] | None:
    job = read_json(paths.job)
    try:
        cluster = job["asked"]["cluster"]["file"]
        asked: dict[str, Any] = cluster.get("container") or {}
    except (TypeError, KeyError):
        return None
    is_here = cluster.get("kind") == "local" and asked.get("runtime") in RUNTIMES
    return asked if is_here else None
