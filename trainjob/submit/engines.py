"""The program that builds and runs images: Docker, Podman or Apptainer, whichever is here."""

from __future__ import annotations

import shutil

from trainjob.contract.errors import UserError
from trainjob.submit import process

# In the order in which they are looked for.
RUNNING = ("docker", "podman")
BUILDING = (*RUNNING, "apptainer")
_NONE_HERE = "{} is not on PATH: install docker.io or podman (Debian, Ubuntu: apt install), or name another engine"


def find(asked: str | None, among: tuple[str, ...]) -> str:
    """Return the engine to use, by name: the one asked for, or the first of `among` that is installed and answers.

    Raises UserError, with what would help, when there is none.
    """
    if asked is not None and asked not in among:
        raise UserError(f"--engine {asked}: expected {', '.join(among)}")
    here = [name for name in ((asked,) if asked else among) if shutil.which(name)]
    if not here:
        raise UserError(_NONE_HERE.format(" nor ".join((asked,) if asked else among)))
    silences = {name: silence(name) for name in here}
    for name, why in silences.items():
        if why is None:
            return name
    raise UserError(str(silences[here[0]]))


def silence(engine: str) -> str | None:
    """Return why an engine can't be used; None when it answers. Podman and Apptainer have no daemon to ask."""
    if shutil.which(engine) is None:
        return _NONE_HERE.format(engine)
    if engine != "docker":
        return None
    answer = process.run([engine, "version", "--format", "{{.Server.Version}}"], check=False)
    if answer.code == 0:
        return None
    said = answer.stderr.strip().splitlines()[-1:] or ["it says nothing"]
    return (
        f"docker is here and its engine gives no answer ({said[0]}): start it (systemctl start docker), join the "
        "group docker, or set DOCKER_HOST"
    )
