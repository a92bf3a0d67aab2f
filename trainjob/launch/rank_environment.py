"""The environment of each rank: its place among the others, where they meet, its device and its threads."""

from __future__ import annotations

import glob
import os
import re
import time
from pathlib import Path
from typing import Dict, FrozenSet, List, Mapping, NamedTuple, Sequence

from trainjob.contract import clock, environment, ports
from trainjob.contract.environment import Ranking
from trainjob.contract.errors import UserError
from trainjob.launch.host import cpu_quota, own_name, text

# Below Linux's ephemeral range (32768 to 60999), where the kernel hands out ports by itself.
FIRST_PORT, LAST_PORT = 20000, 32767
# For libgomp, which torch's wheels bring, and for the OpenMP of LLVM and Intel, which conda's torch uses.
WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}
# A rank's threads, and how they wait.
OPENMP = ("OMP_NUM_THREADS", "GOMP_SPINCOUNT", *WAITING)
# Python buffers output to a file: a log would lag behind by up to 8 kB, and lose them if the rank is killed.
PRINTING = {"PYTHONUNBUFFERED": "1"}
# The values of CUDA_VISIBLE_DEVICES that CUDA and Slurm set for a process without a GPU.
_NO_DEVICE = ("-1", "NoDevFiles")
_CPUS_ALLOWED = "Cpus_allowed_list:"
# AMD's kernel driver lists CPUs beside GPUs; only a GPU has SIMD units.
_AMD_NODES = "/sys/class/kfd/kfd/topology/nodes/*/properties"
_AMD_GPU = r"(?m)^simd_count\s+[1-9]"


class Rank(NamedTuple):
    """One rank before it starts."""

    ranking: Ranking
    command: Sequence[str]
    environment: Dict[str, str]
    folder: Path
    log: Path
    begins_log: bool = True
    cpus: FrozenSet[int] = frozenset()  # to which it is bound; none: as this process
    ranks_per_node: int = 0  # that the command starts by itself; 0: it is the rank
    holds_input: bool = False  # its standard input stays open for as long as this process lives

    @property
    def number(self) -> int:
        """The rank that it is; of a node whose ranks the command starts by itself, the first of them."""
        return self.ranking.rank * max(1, self.ranks_per_node)

    @property
    def numbers(self) -> List[int]:
        """The ranks that the command starts by itself, or the one that it is."""
        return list(range(self.number, self.number + max(1, self.ranks_per_node)))

    def header(self, number: int) -> str:
        """Return the line that heads each attempt in the log of rank `number`, one of `numbers`."""
        return "--- attempt %s · rank %d of %d · %s · %s ---\n" % (
            self.environment[environment.ATTEMPT],
            number,
            self.ranking.world_size * max(1, self.ranks_per_node),
            own_name(),
            time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(clock.time())),
        )


class Watched(NamedTuple):
    """A rank that runs, or a launcher of a node's ranks: its process, and the environment that it was given."""

    attempt: int
    rank: int
    pid: int
    environment: Mapping[str, str]
    ranks_per_node: int = 0  # that it starts by itself; 0: it is the rank

    @property
    def numbers(self) -> List[int]:
        """The ranks that it is, or starts."""
        return list(range(self.rank, self.rank + max(1, self.ranks_per_node)))


class LaunchError(UserError):
    """The ranks of this host can't be started."""

    code = "launch"


def all_on_this_host(instances: int) -> List[Ranking]:
    """Return the rankings of `instances` ranks that all run here."""
    if instances < 1:
        raise LaunchError("--instances is %d" % instances, "at least 1 rank is needed")
    return [Ranking(index, index, instances, instances) for index in range(instances)]


def from_launcher(launcher: str, environ: Mapping[str, str]) -> Ranking:
    """Return the place that srun or mpirun gave to this process. Raises LaunchError if there is none."""
    try:
        return environment.ranking(launcher, environ)
    except KeyError as missing:
        raise LaunchError(
            "launcher %s did not set %s" % (launcher, missing.args[0]),
            "start this script through it, or give --launcher local",
        ) from None


def variables(ranking: Ranking) -> Dict[str, str]:
    """Return the four variables of a rank's place."""
    return {
        environment.RANK: str(ranking.rank),
        environment.LOCAL_RANK: str(ranking.local_rank),
        environment.WORLD_SIZE: str(ranking.world_size),
        environment.LOCAL_WORLD_SIZE: str(ranking.local_world_size),
    }


def identity(run: str, folder: Path, rank: int) -> Dict[str, str]:
    """Return what has libraries continue one run over all attempts; `folder` is the rank's working folder.

    Ranks that all log have a run each: two writers of one would lose lines. MLflow's server gives its ids itself.
    """
    name = run.replace(":", "-") + ("-rank%d" % rank if rank else "")  # W&B refuses a colon
    return {
        "WANDB_RUN_ID": name,
        "WANDB_RESUME": "allow",
        "TENSORBOARD_LOGGING_DIR": str(folder / "runs" / name),  # Trainer's
        # submitit asks for USR2, which it has Slurm send to the jobs that it submits itself.
        "SUBMITIT_PREEMPT_SIGNAL": "USR1",
    }


def torchrun(run: str, attempt: int, ranking: Ranking, environ: Mapping[str, str]) -> Dict[str, str]:
    """Return the other names that torchrun sets, by which Lightning and Fabric see that ranks are started already.

    Empty inside a Slurm job, whose names tell them that. A node is a group, and all ranks have one role.
    """
    if "SLURM_JOB_ID" in environ:
        return {}
    groups = -(-ranking.world_size // ranking.local_world_size)
    return {
        "TORCHELASTIC_RUN_ID": run,
        "TORCHELASTIC_RESTART_COUNT": str(attempt - 1),
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "GROUP_RANK": str(ranking.rank // ranking.local_world_size),
        "GROUP_WORLD_SIZE": str(groups),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(ranking.rank),
        "ROLE_WORLD_SIZE": str(ranking.world_size),
    }


def on_interface(environ: Dict[str, str], interface: str, data_interface: str = "") -> Dict[str, str]:
    """Return `environ` with gloo and NCCL on `interface`, unless the user has chosen another.

    `data_interface` is for data alone, and may be a pattern of NCCL's (^docker,lo), which gloo can't read.
    """
    for_gloo = interface if data_interface.startswith(("^", "=")) else data_interface or interface
    for name, chosen in (("GLOO_SOCKET_IFNAME", for_gloo), ("NCCL_SOCKET_IFNAME", data_interface or interface)):
        if chosen:
            environ.setdefault(name, chosen)
    return environ


class Affinity(NamedTuple):
    """The number of CPUs that this process may use, and whether they belong to it alone."""

    cpus: int
    is_bound: bool


def affinity() -> Affinity:
    """Return the CPUs of this process, which may be fewer than those of its launcher."""
    cpus = len(os.sched_getaffinity(0))
    return Affinity(min(cpus, cpu_quota() or cpus), is_narrower(cpus, os.getppid()))


def is_narrower(cpus: int, parent: int, processes: Path = Path("/proc")) -> bool:
    """Return whether `cpus` are fewer than those of process `parent`; False if these can't be read."""
    status = text(processes / str(parent) / "status")
    listed = [line.partition(":")[2] for line in status.splitlines() if line.startswith(_CPUS_ALLOWED)]
    return bool(listed) and cpus < len(cpu_numbers(listed[0]))


def cpu_numbers(text: str) -> List[int]:
    """Return the numbers in a list as the kernel writes it: 0-3,8."""
    bounds = [part.partition("-") for part in text.strip().split(",") if part]
    return [cpu for first, _, last in bounds for cpu in range(int(first), int(last or first) + 1)]


def threading(
    launcher: str, ranking: Ranking, affinity: Affinity, environ: Mapping[str, str], bound_here: bool = False
) -> Dict[str, str]:
    """Return defaults for a rank's threads: one for each of its CPUs, and waiting that leaves CPUs to others.

    Left to themselves, OpenMP's threads spin while they wait for each other. Where something else runs on one of their
    cores, the thread there is late, and the others burn the time that it needs (benchmarks/busy.py). Where nothing
    does, `ranks.spinning` has them spin for a moment.
    """
    per_task = environ.get("SLURM_CPUS_PER_TASK", "") if launcher != "local" else ""
    if per_task.isdigit():
        count = min(affinity.cpus, int(per_task))
    elif bound_here or (affinity.is_bound and launcher != "local"):
        count = affinity.cpus
    else:
        count = affinity.cpus // ranking.local_world_size
    return {"OMP_NUM_THREADS": str(max(1, count)), **WAITING}


def rendezvous_on_this_host(port: int) -> Dict[str, str]:
    """Return the address and port where ranks of one host meet.

    `port` 0 means a free one. Raises LaunchError if a given port is in use.
    """
    if port and not ports.is_free(port):
        raise LaunchError(
            "port %d on %s is in use by another job" % (port, ports.LOOPBACK),
            "remove network.port from the cluster file, and a free port is chosen",
        )
    # Not derived from the process id: containers that share a network have the same process ids.
    chosen = port or free_port(int.from_bytes(os.urandom(4), "big"))
    return {environment.MASTER_ADDR: ports.LOOPBACK, environment.MASTER_PORT: str(chosen)}


def refuse_no_rendezvous(environ: Mapping[str, str]) -> None:
    """Raise LaunchError if the job script has not set where the ranks of several hosts meet."""
    missing = [name for name in (environment.MASTER_ADDR, environment.MASTER_PORT) if not environ.get(name)]
    if missing:
        raise LaunchError(
            "%s is not set; a job script sets it before srun" % missing[0], "start the ranks through the job script"
        )


def free_port(seed: int) -> int:
    """Return a port below the ephemeral range on which no program listens; `seed` chooses the first that is tried."""
    count = LAST_PORT - FIRST_PORT + 1
    for step in range(count):
        port = FIRST_PORT + (seed * 31 + step) % count
        if ports.is_free(port):
            return port
    raise LaunchError(
        "no port from %d to %d is free on %s" % (FIRST_PORT, LAST_PORT, ports.LOOPBACK),
        "end programs that hold them (ss -ltnp lists them), or use another host",
    )


def device(accelerator: str, ranking: Ranking, environ: Mapping[str, str]) -> Dict[str, str]:
    """Return the variable that names a rank's device: cpu, cuda:N or ipu.

    A single visible GPU is device 0 (the launcher has bound it); of several, each rank takes the one of its local rank.
    Raises LaunchError if there are more ranks than GPUs.
    """
    if accelerator == "cpu" or environment.redirect(environ, "TRAINJOB_DEVICE") == "cpu":
        return {environment.RANK_DEVICE: "cpu"}
    if accelerator == "ipu":
        return {environment.RANK_DEVICE: "ipu"}
    visible = _visible_gpus(environ)
    # srun with --gpus-per-task shows each rank only its own GPU.
    if visible == 1 and (ranking.local_world_size == 1 or environ.get("SLURM_STEP_GPUS")):
        return {environment.RANK_DEVICE: "cuda:0"}
    if ranking.local_rank >= visible:
        raise LaunchError(
            "local rank %d of %d needs a GPU of its own and %d are visible"
            % (ranking.local_rank, ranking.local_world_size, visible),
            "request as many GPUs per node as instances per node" if visible else environment.TRY_ON_CPUS,
        )
    return {environment.RANK_DEVICE: "cuda:%d" % ranking.local_rank}


def gpus_needed(ranking: Ranking, environ: Mapping[str, str]) -> int:
    """Return how many GPUs the ranks of this host need and this process should see; 0 on the CPU."""
    if environment.redirect(environ, "TRAINJOB_DEVICE") == "cpu":
        return 0
    if "CUDA_VISIBLE_DEVICES" not in environ:
        return ranking.local_world_size
    # srun with --gpus-per-task shows each rank only its own GPU.
    return min(ranking.local_world_size, max(1, _gpus_in(environ, "CUDA_VISIBLE_DEVICES")))


def _visible_gpus(environ: Mapping[str, str]) -> int:
    # ROCm applies HIP's list, or else CUDA's, to the GPUs that ROCR's list leaves.
    lists = (
        "ROCR_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES" if "HIP_VISIBLE_DEVICES" in environ else "CUDA_VISIBLE_DEVICES",
    )
    counts = [_gpus_in(environ, name) for name in lists if name in environ]
    if counts:
        return min(counts)
    amd_gpus = [file for file in glob.glob(_AMD_NODES) if re.search(_AMD_GPU, text(file))]
    return len(glob.glob("/dev/nvidia[0-9]*")) or len(amd_gpus)


def _gpus_in(environ: Mapping[str, str], name: str) -> int:
    return len([gpu for gpu in listed_in(environ, name) if gpu not in _NO_DEVICE])


def listed_in(environ: Mapping[str, str], name: str) -> List[str]:
    """Return the names in a comma-separated list such as CUDA_VISIBLE_DEVICES; none if it is not set."""
    return [word.strip() for word in environ.get(name, "").split(",") if word.strip()]
