"""The program that builds and runs images: Docker, Podman or Apptainer, whichever is installed."""

from __future__ import annotations

import shutil

from trainjob.contract.errors import Problem, UserError
from trainjob.machines import process

# In the order in which they are tried.
RUNNING = ("docker", "podman")
BUILDING = (*RUNNING, "apptainer")
_CODE = "engine"


def find(engine: str | None, among: tuple[str, ...]) -> str:
    """Return the name of the engine to use: `engine`, or the first of `among` that is installed and answers.

    Raises UserError, with the cure, when there is none.
    """
    if engine is not None and engine not in among:
        raise UserError(f"--engine {engine}", f"expected {', '.join(among)}")
    wanted = among if engine is None else (engine,)
    installed = [name for name in wanted if shutil.which(name)]
    if not installed:
        raise UserError.of_all([_missing(" nor ".join(wanted))])
    faults = {name: silence(name) for name in installed}
    for name, fault in faults.items():
        if fault is None:
            return name
    raise UserError.of_all([fault for fault in faults.values() if fault is not None][:1])


def silence(engine: str) -> Problem | None:
    """Return why an engine can't be used; None if it answers. Podman and Apptainer have no daemon to ask."""
    if shutil.which(engine) is None:
        return _missing(engine)
    if engine != "docker":
        return None
    answer = process.run([engine, "version", "--format", "{{.Server.Version}}"], check=False)
    if answer.code == 0:
        return None
    why = answer.stderr.strip().splitlines()[-1:] or ["it prints no reason"]
    return Problem(
        _CODE,
        f"docker is installed, but its engine does not answer ({why[0]})",
        "start it (systemctl start docker), join the group docker, or set DOCKER_HOST",
    )


def _missing(engines: str) -> Problem:
    return Problem(
        _CODE,
        f"{engines} is not on PATH",
        "install docker.io or podman (Debian, Ubuntu: apt install), or name another engine",
    )
