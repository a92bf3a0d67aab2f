"""The container that one rank runs in: the words of `docker run` and `podman run`, each with its origin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainjob.contract.errors import UserError
from trainjob.contract.quoting import Shell
from trainjob.planning.engines import needs_mpirun
from trainjob.render.record import environment
from trainjob.render.request import Request
from trainjob.render.sourced import Sourced

# From Graphcore's own instructions, without --privileged, which is not needed.
_IPU = ("--cap-add", "IPC_LOCK", "--ulimit", "memlock=-1:-1", "--device", "/dev/infiniband/")
_IPU_NAMES = ("HOST", "PORT", "PARTITION_ID", "GCD_ID", "TIMEOUT")
_DEVICES = {
    ("docker", "gpu"): ("--gpus", "all"),
    ("podman", "gpu"): ("--device", "nvidia.com/gpu=all"),
    ("docker", "ipu"): _IPU,
    ("podman", "ipu"): _IPU,
}

# accelerator -> our image for it
_KINDS = {"cpu": "cpu", "gpu": "cuda", "ipu": "ipu"}


class ContainerError(UserError):
    """A job that can't run in the containers that its cluster file requests."""

    code = "container"


def container(request: Request) -> dict[str, Any] | None:
    """Return what a template prints of the container; None if ranks run without one.

    The keys are `engine`, `image`, `flags` (words), and `names` of the variables that a rank gets from outside.
    Raises ContainerError.
    """
    settings = request.cluster.container
    if settings.runtime == "none":
        return None
    if settings.runtime not in ("docker", "podman"):
        raise ContainerError(
            f"container.runtime is {settings.runtime} and the cluster is of kind {request.cluster.kind}, "
            "where ranks run in docker or podman",
            "take one of them, or runtime: none",
        )
    accelerator = request.plan.topology.device.lower()
    if needs_mpirun(request.plan.engine):
        raise ContainerError(
            f"engine {request.plan.engine} starts its ranks by mpirun, which can't start each in its own container",
            f"give --engine ddp, or run everything in one container: trainjob container run {_KINDS[accelerator]} "
            f"-- submit --engine {request.plan.engine}",
        )
    if str(settings.image).startswith("-"):
        raise ContainerError(
            f"container.image is {settings.image}, which {settings.runtime} would take for an option",
            "choose a name without the dash",
        )
    origin = request.cluster_origin
    return {
        "engine": Sourced(settings.runtime, origin),
        "image": Sourced(settings.image, origin),
        "flags": [Sourced(word, origin) for word in (*device_flags(settings.runtime, accelerator), *settings.options)],
        "names": [Shell(name) for name in dict.fromkeys((*variables(accelerator), *environment(request)))],
    }


def device_flags(runtime: str, accelerator: str) -> tuple[str, ...]:
    """Return the words that give a container access to its accelerators: none on CPUs."""
    return _DEVICES.get((runtime, accelerator), ())


def variables(accelerator: str) -> Iterator[str]:
    """Yield the names of the variables that tell a rank its accelerators. No value is on a command line."""
    if accelerator == "gpu":
        yield from ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
    if accelerator == "ipu":
        yield from (f"IPUOF_VIPU_API_{name}" for name in _IPU_NAMES)
