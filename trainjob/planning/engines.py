"""The engine that trains a job, and the devices and precisions of each engine: a new engine is a row of the table."""

from __future__ import annotations

from typing import NamedTuple

from trainjob.cluster.job import Job
from trainjob.contract.errors import nearest
from trainjob.contract.forms import parse_ranks
from trainjob.planning.rules import Knob, refuse
from trainjob.planning.words import quantity
from trainjob.records.job import Topology

COMMAND = "command"

ENGINE_EXISTS = "--engine names an engine that exists"
ENGINE_FITS = "an engine trains on the devices it was made for"
ONE_INSTANCE = "engine single is one instance"
PRECISION = "a precision is one that the engine supports"
SHARDS = "only an engine that shards the model takes shard_group and offload"
SHARD_GROUPS = "all shard groups have the same number of instances"
OFFLOAD = "offload moves weights from a device to its host"
RECOMPUTE = "recompute is for engines on CPUs and GPUs"
AVERAGES = "weights are averaged only by engines that return them to the host after every update"
COMPILES = "torch.compile is for engines on CPUs and GPUs"
MEMORY_FORMAT = "channels-last is for engines that take gradients in any memory format"
PROFILES = "torch's profiler is for engines on CPUs and GPUs"
PROFILED = "the ranks to profile are ranks of the job"
SUM_ORDER = "the order of sums is fixed only by engines that do the sums themselves"


class EngineAbilities(NamedTuple):
    """The abilities of one engine."""

    devices: tuple[str, ...]
    precisions: tuple[str, ...]  # input.model bits
    one_instance: bool = False
    mpirun: bool = False  # its ranks meet through MPI
    same_bits: bool = True  # the same job gives the same weights to the last bit: Horovod's fusion depends on timing
    fixed_order: bool = False  # takes --sum-order fixed
    shards: bool = False  # takes --shard-group and --offload
    averages: bool = True  # takes --average-decay
    channels_last: bool = False  # takes --memory-format channels-last
    optimizers: tuple[str, ...] = ()  # the built-in ones that it supports; empty: any


_OF_TORCH = ("32.32", "16.32", "16.16", "bf16", "64.64")
ENGINES = {
    "single": EngineAbilities(("CPU", "GPU"), _OF_TORCH, one_instance=True, fixed_order=True, channels_last=True),
    "ddp": EngineAbilities(("CPU", "GPU"), _OF_TORCH, fixed_order=True, channels_last=True),
    "fsdp": EngineAbilities(("CPU", "GPU"), _OF_TORCH, shards=True),
    "naive": EngineAbilities(("CPU", "GPU"), _OF_TORCH, fixed_order=True),
    "horovod": EngineAbilities(("CPU", "GPU"), _OF_TORCH, mpirun=True, same_bits=False),
    "parameter-averaging": EngineAbilities(("CPU", "GPU"), _OF_TORCH),
    # IPUs have no float64, and PopTorch brings its own optimizers.
    "ipu": EngineAbilities(("IPU",), ("32.32", "16.32", "16.16"), averages=False, optimizers=("sgd", "adamw", "lamb")),
}


def engine(job: Job, counts: Topology) -> str:
    """Return the name of the engine: the job's, else the default for its devices and instances. Raises Broken."""
    if job.command is not None:
        return COMMAND
    default = "ipu" if counts.device == "IPU" else "single" if counts.instances == 1 else "ddp"
    name = job.engine if job.engine is not None else default
    if name not in ENGINES:
        fitting = _for_device(counts.device)
        close = nearest(name, fitting)
        cure = f"Did you mean {close}?" if close else f"For {counts.device}s there is {' and '.join(fitting)}."
        refuse(ENGINE_EXISTS, f"engine is {name}", otherwise=cure)
    _check(name, ENGINES[name], job, counts)
    return name


def needs_mpirun(name: str) -> bool:
    """Return whether mpirun starts the ranks of engine `name` on one machine; launch.py starts all others."""
    return name in ENGINES and ENGINES[name].mpirun


def _for_device(device_word: str) -> list[str]:
    return [name for name, engine in ENGINES.items() if device_word in engine.devices]


def _check(name: str, chosen: EngineAbilities, job: Job, counts: Topology) -> None:
    if counts.device not in chosen.devices:
        values = f"engine {name} is for {' and '.join(chosen.devices)}, the cluster has {counts.device}s"
        fitting = " or ".join(_for_device(counts.device))
        refuse(ENGINE_FITS, values, otherwise=f"Leave --engine out, or take {fitting}.")
    if chosen.one_instance and counts.instances > 1:
        knob = Knob("instances", counts.instances, (1,))
        refuse(ONE_INSTANCE, quantity(counts.instances, "instance"), knob, otherwise="Or --engine ddp.")
    if job.precision not in chosen.precisions:
        values = f"precision is {job.precision}, {name} trains in {', '.join(chosen.precisions)}"
        refuse(PRECISION, values, otherwise=f"Take --precision {chosen.precisions[0]}.")
    if job.average_decay is not None and not chosen.averages:
        refuse(
            AVERAGES,
            f"engine is {name}, average_decay is {job.average_decay:g}",
            otherwise="Leave out --average-decay.",
        )
    if job.sum_order == "fixed" and not chosen.fixed_order:
        able = [other for other, engine in ENGINES.items() if engine.fixed_order and not engine.one_instance]
        refuse(SUM_ORDER, f"engine is {name}, sum_order is fixed", otherwise=f"Take --engine {' or '.join(able)}.")
    if job.compile and "IPU" in chosen.devices:
        refuse(COMPILES, f"engine is {name}", otherwise="Leave --compile out: PopTorch compiles every model.")
    if job.memory_format != "contiguous" and not chosen.channels_last:
        able = [other for other, engine in ENGINES.items() if engine.channels_last]
        cure = f"Leave --memory-format out, or take --engine {' or '.join(able)}."
        refuse(MEMORY_FORMAT, f"engine is {name}", otherwise=cure)
    if job.profile is not None and "IPU" in chosen.devices:
        refuse(PROFILES, f"engine is {name}", otherwise="Leave --profile out, and use Graphcore's PopVision.")
    highest = max(parse_ranks(job.profile_ranks))
    if job.profile is not None and highest >= counts.instances:
        values = f"rank {highest} of {quantity(counts.instances, 'instance')}, which are numbered from 0"
        refuse(PROFILED, values, otherwise="Leave --ranks out, or name ranks that the job has.")
    _check_sharding(name, chosen, job, counts)


def _check_sharding(name: str, chosen: EngineAbilities, job: Job, counts: Topology) -> None:
    if job.recompute and "IPU" in chosen.devices:
        cure = "Leave --recompute out; on IPUs poptorch's recomputation is an option of the task's model."
        refuse(RECOMPUTE, f"engine is {name}", otherwise=cure)
    stated = [setting for setting in ("shard_group", "offload") if getattr(job, setting)]
    if stated and not chosen.shards:
        refuse(SHARDS, f"engine is {name}, {stated[0]} is {getattr(job, stated[0])}", otherwise="Take --engine fsdp.")
    if job.offload and counts.device == "CPU":
        refuse(OFFLOAD, "the cluster trains on CPUs", otherwise="Leave --offload out.")
    if job.shard_group is not None and counts.instances % job.shard_group:
        refuse(
            SHARD_GROUPS,
            f"{quantity(counts.instances, 'instance')} in groups of {job.shard_group}",
            Knob("shard_group", job.shard_group),
            Knob("instances", counts.instances),
        )
