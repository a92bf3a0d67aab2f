"""Which engine trains, on which devices, in which precisions: a new engine is one more line of the table."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from trainjob.cluster.job import Job
from trainjob.plan.counts import Counts
from trainjob.plan.rules import Knob, refuse
from trainjob.plan.words import quantity

COMMAND = "command"

ENGINE_EXISTS = "an engine is one of those there are"
ENGINE_FITS = "an engine trains on the devices it was made for"
ONE_INSTANCE = "engine single is one instance"
PRECISION = "a precision is one that the engine trains in"


@dataclass(frozen=True)
class Engine:
    """What one engine can do."""

    devices: tuple[str, ...]
    precisions: tuple[str, ...]  # input.model bits
    one_instance: bool = False
    mpirun: bool = False  # its ranks meet through MPI
    same_bits: bool = True  # the same job gives the same weights to the last bit


_OF_TORCH = ("32.32", "16.32", "16.16", "bf16", "64.64")
ENGINES = {
    "single": Engine(("CPU", "GPU"), _OF_TORCH, one_instance=True),
    "ddp": Engine(("CPU", "GPU"), _OF_TORCH),
    "naive": Engine(("CPU", "GPU"), _OF_TORCH),
    "horovod": Engine(("CPU", "GPU"), _OF_TORCH, mpirun=True, same_bits=False),
    "parameter-averaging": Engine(("CPU", "GPU"), _OF_TORCH),
    "ipu": Engine(("IPU",), ("32.32", "16.32", "16.16")),  # IPUs have no float64
}


def engine(job: Job, counts: Counts) -> str:
    """Return the name of the engine: as asked, else as devices and instances say. Raises Broken."""
    if job.command is not None:
        return COMMAND
    name = job.engine if job.engine is not None else _default(counts)
    if name not in ENGINES:
        refuse(ENGINE_EXISTS, f"engine is {name}", otherwise=_nearest(name, counts.device_word))
    _check(name, ENGINES[name], job, counts)
    return name


def needs_mpirun(name: str) -> bool:
    """Return whether mpirun starts the ranks of engine `name` on one machine; launch.py starts all others."""
    return name in ENGINES and ENGINES[name].mpirun


def gives_same_bits(name: str) -> bool:
    """Return whether engine `name` sums in the same order every time: Horovod's fusion depends on timing."""
    return name in ENGINES and ENGINES[name].same_bits


def _default(counts: Counts) -> str:
    if counts.device_word == "IPU":
        return "ipu"
    return "single" if counts.instances == 1 else "ddp"


def _nearest(name: str, device_word: str) -> str:
    fitting = _for_device(device_word)
    close = get_close_matches(name, fitting, n=1)
    return f"Did you mean {close[0]}?" if close else f"For {device_word}s there is {' and '.join(fitting)}."


def _for_device(device_word: str) -> list[str]:
    return [name for name, engine in ENGINES.items() if device_word in engine.devices]


def _check(name: str, chosen: Engine, job: Job, counts: Counts) -> None:
    if counts.device_word not in chosen.devices:
        found = f"engine {name} is for {' and '.join(chosen.devices)}, the cluster has {counts.device_word}s"
        refuse(
            ENGINE_FITS, found, otherwise=f"Leave --engine out, or take {' or '.join(_for_device(counts.device_word))}."
        )
    if chosen.one_instance and counts.instances > 1:
        knob = Knob("instances", counts.instances, (1,))
        refuse(ONE_INSTANCE, quantity(counts.instances, "instance"), knob, otherwise="Or --engine ddp.")
    if job.precision not in chosen.precisions:
        found = f"precision is {job.precision}, {name} trains in {', '.join(chosen.precisions)}"
        refuse(PRECISION, found, otherwise=f"Take --precision {chosen.precisions[0]}.")
