"""What a live Slurm lets a job have: the CPUs and memory of a node that are not kept back, and an account."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainjob.contract.errors import UserError
from trainjob.machines.machine import Machine
from trainjob.machines.slurm import commands
from trainjob.machines.slurm.partitions import Nodes


@dataclass(frozen=True)
class Account:
    """Whether each job is charged to an account, and the one that is charged unless the job names another, or ""."""

    is_demanded: bool
    default: str


def partition(machine: Machine, name: str) -> dict[str, str]:
    """Return the settings of a partition. Raises as commands.call does."""
    return _pairs(commands.call(machine, ["scontrol", "show", "partition", name]).text)


def _pairs(shown: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in shown.split() if "=" in pair)


def nodes(
    machine: Machine, name: str, alike: Nodes, settings: Mapping[str, str], of_partition: Mapping[str, str]
) -> Nodes:
    """Return nodes of partition `name` that are `alike`, with the CPUs and memory that a job may have of each.

    `settings` are those of slurm.conf. Raises as commands.call does.
    """
    cpus, memory_mb = alike.cpus, alike.memory_mb
    for line in commands.call(machine, ["scontrol", "show", "node", "-o"]).text.splitlines():
        shown = _pairs(line)
        is_like = (shown.get("CPUTot"), shown.get("RealMemory")) == (str(alike.cpus), str(alike.memory_mb))
        if is_like and name in shown.get("Partitions", "").split(","):
            kept = int(shown.get("CoreSpecCount", 0)) * alike.threads_per_core
            cpus = min(cpus, int(shown.get("CPUEfctv", alike.cpus - kept)))
            memory_mb = min(memory_mb, alike.memory_mb - int(shown.get("MemSpecLimit", 0)))
    limits = {**settings, **{key: value for key, value in of_partition.items() if value != "UNLIMITED"}}
    cpus = min(cpus, _number(limits, "MaxCPUsPerNode") or cpus)
    cpus -= cpus % alike.threads_per_core
    for most_mb in (_number(limits, "MaxMemPerNode"), _number(limits, "MaxMemPerCPU") * cpus):
        memory_mb = min(memory_mb, most_mb or memory_mb)
    return replace(alike, cpus=cpus, memory_mb=memory_mb)


def _number(limits: Mapping[str, str], name: str) -> int:
    """Return a limit; 0 where there is none."""
    text = limits.get(name, "")
    return int(text) if text.isdigit() else 0


def account(machine: Machine, settings: Mapping[str, str]) -> Account:
    """Return the account of this user's jobs, as far as sacctmgr says it: some sites keep it to administrators."""
    enforced = settings.get("AccountingStorageEnforce", "none")
    if "associations" not in enforced and "limits" not in enforced:
        return Account(is_demanded=False, default="")
    words = ["sh", "-c", 'exec sacctmgr -n -P show user "$(id -un)" format=DefaultAccount']
    try:
        answer = commands.call(machine, words, program="sacctmgr").text
    except UserError:
        answer = ""
    return Account(is_demanded=True, default=answer.strip().partition("\n")[0])
