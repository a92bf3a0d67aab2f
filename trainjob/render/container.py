"""The container that one rank runs in: the words of `docker run` and `podman run`, each with its origin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainjob.contract.environment import RANK_IN_CONTAINER
from trainjob.contract.errors import UserError
from trainjob.plan.engines import needs_mpirun
from trainjob.render.quoting import Shell
from trainjob.render.record import environment
from trainjob.render.request import Request
from trainjob.render.sourced import Sourced

# What marks a container as a run's own; its value is the run directory.
LABEL = "trainjob.run"
# As Graphcore's own instructions have them, but for --privileged, which they don't need.
_IPU = ("--cap-add", "IPC_LOCK", "--ulimit", "memlock=-1:-1", "--device", "/dev/infiniband/")
_IPU_NAMES = ("HOST", "PORT", "PARTITION_ID", "GCD_ID", "TIMEOUT")
_DEVICES = {
    ("docker", "gpu"): ("--gpus", "all"),
    ("podman", "gpu"): ("--device", "nvidia.com/gpu=all"),
    ("docker", "ipu"): _IPU,
    ("podman", "ipu"): _IPU,
}

# accelerator -> the image of ours that is for it
_KINDS = {"cpu": "cpu", "gpu": "cuda", "ipu": "ipu"}


class ContainerError(UserError):
    """A job that can't run in containers as its cluster file asks."""


def container(request: Request) -> dict[str, Any] | None:
    """Return what a template prints of the container; None when ranks run without one, or not under Docker or Podman.

    `engine`, `image`, `flags` (words), `names` (of variables that are handed in from outside, by name alone).
    """
    asked = request.cluster.container
    if asked.runtime == "none":
        return None
    if asked.runtime not in ("docker", "podman"):
        raise ContainerError(
            f"container.runtime is {asked.runtime} and the cluster is of kind {request.cluster.kind}, "
            "where ranks run in docker or podman: take one of them, or runtime: none"
        )
    _refuse_mpirun(request)
    if str(asked.image).startswith("-"):
        raise ContainerError(f"container.image is {asked.image}, which {asked.runtime} would take for an option")
    accelerator = _device(request)
    origin = request.cluster_origin
    return {
        "engine": Sourced(asked.runtime, origin),
        "image": Sourced(asked.image, origin),
        "flags": [Sourced(word, origin) for word in device_flags(asked.runtime, accelerator)],
        "names": [Shell(name) for name in dict.fromkeys((*variables(accelerator), *environment(request)))],
    }


def _refuse_mpirun(request: Request) -> None:
    if needs_mpirun(request.plan.engine):
        raise ContainerError(
            f"engine {request.plan.engine} starts its ranks by mpirun, which starts none in containers of their own: "
            f"give --engine ddp, or have one container do it all: trainjob container run {_KINDS[_device(request)]} "
            f"-- submit --engine {request.plan.engine}"
        )


def _device(request: Request) -> str:
    return request.plan.topology.device_word.lower()


def device_flags(runtime: str, accelerator: str) -> tuple[str, ...]:
    """Return the words that let a container have its accelerators: none on CPUs."""
    return _DEVICES.get((runtime, accelerator), ())


def variables(accelerator: str) -> Iterator[str]:
    """Yield the names of the variables that a rank is handed: their values never stand on a command line."""
    yield from RANK_IN_CONTAINER
    if accelerator == "gpu":
        yield "CUDA_VISIBLE_DEVICES"
    if accelerator == "ipu":
        yield from (f"IPUOF_VIPU_API_{name}" for name in _IPU_NAMES)
