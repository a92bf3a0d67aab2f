"""The things that a run holds besides its processes: containers of one without a scheduler, and V-IPU partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainjob.backends.base import NotSubmittedError, place_of
from trainjob.cluster.common import Container
from trainjob.contract import package
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.kinds import table
from trainjob.machines import process
from trainjob.machines.access import HERE
from trainjob.machines.machine import Machine
from trainjob.machines.process import CommandError
from trainjob.records import job as jobs
from trainjob.records.job import ContractError

if TYPE_CHECKING:
    from trainjob.records.submission import Submission
    from trainjob.render.request import Request

# As templates/parts/container.sh.j2 marks them.
_LABEL = "trainjob.run"
RUNTIMES = ("docker", "podman")


def image_digest(paths: RunPaths, submission: Submission | None) -> str | None:
    """Return the sha256 of the image that a run uses; None for a run without containers.

    It is the registry's digest, with the image's name, or the id of an image that is only on that machine. Raises
    NotSubmittedError when the engine does not have the image.
    """
    container = _container(paths)
    try:
        machine, _ = place_of(paths, submission)
        return None if container is None else identity(container.runtime, container.image or "", machine)
    except CommandError as error:
        raise NotSubmittedError(error.text, error.cure) from None


def identity(engine: str, image: str, machine: Machine = HERE) -> str:
    """Return `engine`'s sha256 of `image`. Raises CommandError if the engine does not have the image."""
    shown = machine.run([engine, "image", "inspect", "--format", "{{json .RepoDigests}}{{.Id}}", image])
    digests, _, identifier = shown.text.strip().rpartition("]")
    first = digests.strip("[ ").partition(",")[0].strip('"')
    # Podman omits the algorithm.
    return first if "@" in first else "sha256:" + identifier.removeprefix("null").removeprefix("sha256:")


def find(request: Request) -> Container | None:
    """Return the container settings of a job on this machine; None if it runs without."""
    container = request.cluster.container
    return container if request.cluster.trains_here and container.runtime in RUNTIMES else None


def has_image(container: Container) -> bool:
    """Return whether the engine has the image; nothing is downloaded when a run starts."""
    return process.run([container.runtime, "image", "inspect", str(container.image)], check=False).code == 0


def remove(paths: RunPaths, submission: Submission | None) -> None:
    """End and remove every container of a run, whatever its state. An engine that has gone has none."""
    container = _container(paths)
    if container is None:
        return
    machine, folder = place_of(paths, submission)
    engine = container.runtime
    try:
        listed = machine.run([engine, "ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={_LABEL}={folder}"])
        names = listed.text.split()
        # At the first try, Podman only notes that a container whose monitor was killed has ended.
        if names and machine.run([engine, "rm", "--force", *names], check=False).code != 0:
            machine.run([engine, "rm", "--force", *names], check=False)
    except CommandError:
        return


def remove_partitions(paths: RunPaths, submission: Submission | None) -> None:
    """Remove the V-IPU partitions that the run has noted as its own, and no other. Raises UserError if that fails."""
    if not paths.job.is_file():
        return  # an element of an array that has not begun
    cluster = table.recorded_cluster(jobs.read(paths.job)).ipu_keys
    if cluster is None:
        return
    machine, folder = place_of(paths, submission)
    ended = machine.run(
        package.program_command(__file__, "remove_partitions", folder, cluster.vipu.server or ""),
        check=False,
    )
    if ended.code != 0:
        raise UserError(
            f"run {paths.id} has ended, but its partition can't be removed from {machine.name}: {ended.stderr.strip()}",
            "Remove it on a host that has vipu: vipu remove partition NAME",
        )


def _container(paths: RunPaths) -> Container | None:
    try:
        container = table.recorded_cluster(jobs.read(paths.job)).container
    except ContractError:
        return None
    return container if container.runtime in RUNTIMES else None
