"""A job of the user's that holds nodes, as Slurm shows it: what a run inside of it may have."""

from __future__ import annotations

import re
from typing import NamedTuple

from trainjob.cluster.slurm_text import seconds
from trainjob.contract.errors import UserError
from trainjob.machines.machine import ANSWER_S, Machine
from trainjob.machines.slurm import commands

_FIELD = re.compile(r"(\S+?)=(\S*)")
_GPUS = re.compile(r"gres/gpu(?::[^=,]+)?=([0-9]+)")
_GPUS_OF_OTHERS = re.compile(r" Tres(?:PerJob|PerTask|PerSocket)=\S*gpu")
_PER_NODE = re.compile(r"(?:gres[:/])?gpu(?:[:=][^:,=]+)*[:=]([0-9]+)")
_CURE = "Name a job of yours that runs (squeue lists them); --in none submits it to the queue"
_UNKNOWN = re.compile(r"Invalid job id|not found")


class NotRunningError(UserError):
    """A job that has ended, has not begun, or never was."""


class Allocation(NamedTuple):
    """A job that runs: its nodes, what each of them gives it, and the seconds it has left (None: without end).

    Of GPUs, None: the site does not account for them, and they were not asked for by node. `shown` is Slurm's line
    about it, with times in UTC.
    """

    job_id: str
    name: str
    partition: str
    nodes: int
    cpus_per_node: int
    gpus_per_node: int | None
    left_s: int | None
    shown: str = ""


def look(machine: Machine, job_id: str) -> Allocation:
    """Return the allocation of a job that runs. Raises UserError for any other, and where Slurm can't be asked."""
    try:
        words = ["env", "TZ=UTC0", "scontrol", "show", "job", "-o", job_id]
        shown = commands.call(machine, words, program="scontrol", timeout_s=ANSWER_S).text
    except commands.SlurmRefusedError as error:
        if not _UNKNOWN.search(error.reply):
            raise
        raise NotRunningError(f"--in {job_id}: Slurm on {machine.name} has no such job", _CURE) from None
    return parse(shown, job_id)


def parse(shown: str, job_id: str) -> Allocation:
    """Return the allocation that `scontrol show job -o` shows, a line a job. Raises UserError unless it runs."""
    # The number of an array shows all its elements, one of which has this number itself.
    own = next((line for line in shown.splitlines() if line.startswith(f"JobId={job_id} ")), "")
    words = dict(reversed(_FIELD.findall(own)))  # a comment comes last, and may hold anything
    if words.get("JobState") != "RUNNING":
        raise NotRunningError(
            f"--in {job_id}: the job is {words.get('JobState', 'unknown')}, and only one that runs has nodes",
            _CURE,
        )
    nodes = int(words.get("NumNodes", "1").partition("-")[0])
    counted = _GPUS.search(words.get("AllocTRES", "") or words.get("TRES", ""))
    # A site that does not account for GPUs shows what was asked for.
    asked = _PER_NODE.search(words.get("TresPerNode", ""))
    if counted is not None:
        gpus_per_node: int | None = int(counted[1]) // nodes
    elif asked is not None:
        gpus_per_node = int(asked[1])
    else:
        gpus_per_node = None if _GPUS_OF_OTHERS.search(own) else 0
    limit_s = seconds(words.get("TimeLimit", "UNLIMITED")) if words.get("TimeLimit") != "Partition_Limit" else None
    return Allocation(
        job_id=job_id,
        name=words.get("JobName", ""),
        partition=words.get("Partition", ""),
        nodes=nodes,
        cpus_per_node=int(words.get("NumCPUs", "1").partition("-")[0]) // nodes,
        gpus_per_node=gpus_per_node,
        left_s=None if limit_s is None else max(0, limit_s - (seconds(words.get("RunTime", "00:00:00")) or 0)),
        shown=own,
    )
