"""The GPUs of a Slurm cluster's nodes and the jobs that hold them, from the controller: nothing runs on the nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from trainjob.cluster import slurm_text
from trainjob.machines.devices.tools import Device
from trainjob.machines.machine import Machine
from trainjob.machines.slurm import commands, partitions

_SINFO = ["sinfo", "--Node", "--noheader", "-O", "NodeHost:|,Gres:|,StateLong:|"]
_JOB = re.compile(r"JobId=(\d+) .*?UserId=([^(\s]+)")
# The allocation of a job on some of its nodes. GPUs that are only counted get the first indices.
_HELD = re.compile(r" Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)")
_GPUS = re.compile(r"\bgpu(?::[\w.-]+)?:(\d+)(?:\(IDX:([\d,-]+)\))?")


class Held(NamedTuple):
    """A GPU of a node that a job holds."""

    node: str
    number: int
    job: str
    user: str


def devices(machine: Machine, partition: str | None) -> list[Device]:
    """Return the GPUs of the nodes of a partition, or of all. Raises as commands.call does."""
    words = [*_SINFO, *([f"--partition={partition}"] if partition else [])]
    nodes = commands.call(machine, words).text
    jobs = commands.call(machine, ["scontrol", "show", "job", "-d", "-o"]).text
    held = {(one.node, one.number): one for one in parse_jobs(jobs)}
    # A node is listed once for each of its partitions.
    return list(dict.fromkeys(_devices(nodes, held)))


def _devices(nodes: str, held: dict[tuple[str, int], Held]) -> Iterator[Device]:
    for line in nodes.splitlines():
        node, gres, state = (*line.strip().split("|"), "", "", "")[:3]
        gpus = ((kind, count) for name, kind, count in partitions.gres(gres) if name == "gpu")
        for kind, count in gpus:
            for index in range(count):
                job = held.get((node, index))
                where = " · ".join(text for text in (node, kind) if text)
                yield Device(f"GPU {index}", where, state, job.user if job else "", f"job {job.job}" if job else "")


def parse_jobs(text: str) -> Iterator[Held]:
    """Yield the GPUs that jobs hold, in the output of `scontrol show job -d -o`."""
    for line in text.splitlines():
        job = _JOB.match(line)
        for names, gres in _HELD.findall(line) if job else ():
            for node in slurm_text.expand(names):
                for index in _indices(gres):
                    assert job is not None  # noqa: S101 - there is nothing to iterate over without it
                    yield Held(node, index, job[1], job[2])


def _indices(gres: str) -> Iterator[int]:
    for count, listed in _GPUS.findall(gres):
        if not listed:
            yield from range(int(count))
        for part in filter(None, listed.split(",")):
            first, _, last = part.partition("-")
            yield from range(int(first), int(last or first) + 1)
