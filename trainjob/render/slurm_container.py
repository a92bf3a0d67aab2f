"""What ranks run inside of under Slurm: the words before the interpreter, and what the container is let see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainjob.cluster.models import SlurmCluster
from trainjob.contract.environment import LAUNCHER_NAMES
from trainjob.render import quoting
from trainjob.render.container import LABEL, ContainerError
from trainjob.render.places import place
from trainjob.render.record import environment
from trainjob.render.request import Request
from trainjob.render.sourced import Sourced, SourcedShell

# These need a daemon or a user's own storage on each host, and what starts them does not start other hosts.
_ONE_HOST = ("docker", "podman")
# A container sees nothing of the environment but these and the job's own: what a host has loaded is for the host.
FORWARDED = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "TRAINJOB_ATTEMPT",
    "TRAINJOB_DATA_DIR",
    "TRAINJOB_DEVICE",
    "TRAINJOB_INTERFACE",
    "TRAINJOB_MAX_UPDATES",
    "TRAINJOB_RUN_DIR",
    *sorted(LAUNCHER_NAMES["slurm"].values()),
    "SLURMD_NODENAME",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_CPUS_PER_TASK",
    "SLURM_JOB_ID",
    "SLURM_JOB_NODELIST",
    "SLURM_NODEID",
    "SLURM_RESTART_COUNT",
    "SLURM_STEP_GPUS",
)
# docker numbers the GPUs that it gives anew.
_GPUS = "CUDA_VISIBLE_DEVICES"
_SPLITS_MOUNTS = ',"\n'


def context(request: Request, cluster: SlurmCluster) -> dict[str, Any]:
    """Return what templates print of the container; `container` is its runtime, or None. Raises ContainerError."""
    asked, origin = cluster.container, request.cluster_origin
    if asked.runtime == "none" or asked.image is None:
        return {"container": None}
    _refuse_unfit(request, cluster)
    return {
        "container": Sourced(asked.runtime, origin),
        "image": SourcedShell(quoting.path(asked.image), origin),
        "mounts": list(_mounts(request, cluster)),
        "carried": [Sourced(name, origin) for name in _carried(request, cluster)],
        "label": LABEL,
        "gives_gpus": request.plan.topology.device_word == "GPU",
    }


def _refuse_unfit(request: Request, cluster: SlurmCluster) -> None:
    runtime, hosts = cluster.container.runtime, len(request.plan.topology.hosts)
    if runtime in _ONE_HOST and hosts > 1:
        raise ContainerError(
            f"container.runtime is {runtime} and the job takes {hosts} hosts: {runtime} serves one. "
            "Take runtime: apptainer or pyxis, or --hosts 1"
        )


def _mounts(request: Request, cluster: SlurmCluster) -> Iterator[SourcedShell]:
    asked = {f"container.mounts {path}": path for path in cluster.container.mounts}
    if cluster.secrets_file:
        asked["secrets_file"] = cluster.secrets_file
    for key, path in asked.items():
        _refuse_unmountable(key, path, cluster.container.runtime)
        yield place(request, key, path)


def _refuse_unmountable(key: str, path: str, runtime: str) -> None:
    signs = _SPLITS_MOUNTS + (":" if runtime == "pyxis" else "")
    found = next((sign for sign in signs if sign in path), None)
    if found is not None:
        raise ContainerError(f"{key} is {path}, and {runtime} splits a mount at {found!r}: give a path without it")


def _carried(request: Request, cluster: SlurmCluster) -> list[str]:
    names = dict.fromkeys((*FORWARDED, *environment(request)))
    return [*names] if cluster.container.runtime == "docker" else [*names, _GPUS]
