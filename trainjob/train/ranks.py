"""What each rank is told: where it stands, where it meets the others, which device is its own."""

from __future__ import annotations

import glob
import os
from typing import Dict, List, Mapping

from trainjob.contract import environment, ports
from trainjob.contract.environment import Ranking
from trainjob.contract.errors import UserError

# Below Linux's ephemeral range (32768 to 60999), where the kernel hands out ports by itself.
FIRST_PORT, LAST_PORT = 20000, 32767
# How CUDA and Slurm say in CUDA_VISIBLE_DEVICES that a process has no GPU.
_NO_DEVICE = ("-1", "NoDevFiles")


class LaunchError(UserError):
    """The ranks of this host can't be started as asked."""


def all_on_this_host(instances: int) -> List[Ranking]:
    """Return the rankings of `instances` ranks that all run here."""
    if instances < 1:
        raise LaunchError("--instances is %d: at least 1 rank is needed" % instances)
    return [Ranking(index, index, instances, instances) for index in range(instances)]


def from_launcher(launcher: str, environ: Mapping[str, str]) -> Ranking:
    """Return where srun or mpirun put this process. Raises LaunchError when it did not say."""
    try:
        return environment.ranking(launcher, environ)
    except KeyError as missing:
        raise LaunchError(
            "launcher %s did not set %s: start this script through it, or give --launcher local"
            % (launcher, missing.args[0])
        ) from None


def variables(where: Ranking) -> Dict[str, str]:
    """Return the four variables that say where a rank stands."""
    return {
        environment.RANK: str(where.rank),
        environment.LOCAL_RANK: str(where.local_rank),
        environment.WORLD_SIZE: str(where.world_size),
        environment.LOCAL_WORLD_SIZE: str(where.local_world_size),
    }


def on_interface(environ: Dict[str, str], interface: str) -> Dict[str, str]:
    """Return `environ` with gloo and NCCL on `interface`, unless the user has placed them."""
    if interface:
        environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        environ.setdefault("NCCL_SOCKET_IFNAME", interface)
    return environ


def threads(where: Ranking) -> str:
    """Return this rank's share of the cores: every rank taking every core makes a CPU run slow."""
    return str(max(1, len(os.sched_getaffinity(0)) // where.local_world_size))


def rendezvous_on_this_host(port: int) -> Dict[str, str]:
    """Return the address and port where ranks of one host meet.

    `port` 0 means a free one. Raises LaunchError when a port that was asked for is in use.
    """
    # Not from the process id: containers and hosts that share a network count their processes alike.
    chosen = _checked(port) if port else free_port(int.from_bytes(os.urandom(4), "big"))
    return {environment.MASTER_ADDR: ports.LOOPBACK, environment.MASTER_PORT: str(chosen)}


def refuse_no_rendezvous(environ: Mapping[str, str]) -> None:
    """Raise LaunchError where the job script did not say where the ranks of several hosts meet."""
    missing = [name for name in (environment.MASTER_ADDR, environment.MASTER_PORT) if not environ.get(name)]
    if missing:
        raise LaunchError(
            "%s is not set: a job script sets it before srun, so start the ranks through the job script" % missing[0]
        )


def _checked(port: int) -> int:
    if ports.is_free(port):
        return port
    raise LaunchError(
        "port %d on %s is in use: another job has it. Take network.port out of the cluster file "
        "and a free one is chosen" % (port, ports.LOOPBACK)
    )


def free_port(seed: int) -> int:
    """Return a port below the ephemeral range that nobody listens on, looked for from `seed` on."""
    count = LAST_PORT - FIRST_PORT + 1
    for step in range(count):
        port = FIRST_PORT + (seed * 31 + step) % count
        if ports.is_free(port):
            return port
    raise LaunchError("no port from %d to %d is free on %s" % (FIRST_PORT, LAST_PORT, ports.LOOPBACK))


def device(accelerator: str, where: Ranking, environ: Mapping[str, str]) -> Dict[str, str]:
    """Return the variable that names a rank's device: cpu, cuda:N or ipu.

    One GPU visible: it is device 0 (the launcher has bound it). Several: the local rank's.
    Raises LaunchError when ranks outnumber the GPUs.
    """
    if accelerator == "cpu" or environment.redirect(environ, "TRAINJOB_DEVICE") == "cpu":
        return {environment.RANK_DEVICE: "cpu"}
    if accelerator == "ipu":
        return {environment.RANK_DEVICE: "ipu"}
    return {environment.RANK_DEVICE: "cuda:%d" % _gpu(where, environ)}


def _gpu(where: Ranking, environ: Mapping[str, str]) -> int:
    visible = _visible_gpus(environ)
    # srun with --gpus-per-task shows each of several ranks one GPU, its own.
    if visible == 1 and (where.local_world_size == 1 or environ.get("SLURM_STEP_GPUS")):
        return 0
    if where.local_rank >= visible:
        raise LaunchError(
            "local rank %d of %d needs a GPU of its own and %d are visible: "
            "ask for as many GPUs a node as instances a node" % (where.local_rank, where.local_world_size, visible)
        )
    return where.local_rank


def _visible_gpus(environ: Mapping[str, str]) -> int:
    listed = environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        names = [name.strip() for name in listed.split(",")]
        return len([name for name in names if name and name not in _NO_DEVICE])
    return len(glob.glob("/dev/nvidia[0-9]*"))
