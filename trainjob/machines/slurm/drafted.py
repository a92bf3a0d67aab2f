"""Drafts a cluster file from a live Slurm: what sinfo and scontrol report, and what they leave open."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from trainjob.contract.errors import UserError, did_you_mean
from trainjob.machines.machine import Machine
from trainjob.machines.slurm import commands, partitions
from trainjob.machines.slurm.partitions import Nodes, Partition

_MB_PER_GB = 1024
_ACCELERATORS = ("gpu", "ipu")
_PAIR = re.compile(r"^(\S+)\s*=\s*(.*?)\s*$", re.MULTILINE)
_RELEASE = re.compile(r"\d+\.\d+")
_PREEMPTION = {"REQUEUE": "requeue", "CANCEL": "cancel", "SUSPEND": "cancel"}


def text(name: str, machine: Machine, ssh: str | None, partition_name: str | None) -> str:
    """Return the text of a cluster file for one partition of the cluster that `machine` belongs to.

    Raises UserError: an unknown partition, no Slurm, a machine that can't be reached.
    """
    partition = _chosen(partitions.partitions(machine), partition_name, machine.name)
    settings = dict(_PAIR.findall(commands.call(machine, ["scontrol", "show", "config"]).text))
    of_partition = _words(commands.call(machine, ["scontrol", "show", "partition", partition.name]).text)
    return "".join(f"{line}\n" for line in _lines(name, partition, settings, of_partition, ssh))


def _chosen(listed: list[Partition], name: str | None, machine: str) -> Partition:
    if not listed:
        raise UserError(f"sinfo on {machine} shows no partition", "Are you allowed to use this cluster?")
    by_name = {partition.name: partition for partition in listed}
    if name is None:
        return next((partition for partition in listed if partition.is_default), listed[0])
    if name not in by_name:
        raise UserError(
            f"{machine} has no partition {name}", f"{did_you_mean(name, list(by_name))}It has {', '.join(by_name)}"
        )
    return by_name[name]


def _words(output: str) -> dict[str, str]:
    """Return the pairs in the output of `scontrol show partition`, which are separated by spaces."""
    return dict(pair.split("=", 1) for pair in output.split() if "=" in pair)


def _lines(
    name: str, partition: Partition, settings: Mapping[str, str], words: Mapping[str, str], ssh: str | None
) -> Iterator[str]:
    nodes = max(partition.nodes, key=lambda one: one.count)
    yield f"# {name}: drafted from Slurm {settings.get('SLURM_VERSION', '')}, partition {partition.name}."
    if len(partition.nodes) > 1:
        yield f"# Its nodes are of {len(partition.nodes)} kinds; these are the most common ones. For others set a"
        yield "# constraint: in directives, and nodes: to what those have."
    yield from _dumped({"kind": "slurm", **({"ssh": {"host": ssh}} if ssh else {})})
    yield from _dumped({"nodes": _nodes(nodes)})
    yield from _dumped({"limits": _limits(partition, words)})
    yield from _accelerators(nodes)
    yield from _dumped({"directives": {"partition": partition.name}})
    yield from _account(settings)
    yield '# time_limit: "04:00:00"           # optional: of one job; absent: the partition\'s own default'
    yield from _preemption(settings, words)
    yield from _dumped({"slurm": _site(settings)})
    yield from _unknown()


def _dumped(fields: Mapping[str, Any]) -> Iterator[str]:
    yield from yaml.safe_dump(dict(fields), sort_keys=False, default_flow_style=False).splitlines()


def _nodes(nodes: Nodes) -> dict[str, Any]:
    kind = next((one for one in _ACCELERATORS if nodes.accelerators(one)), None)
    types = {model for name, model, _ in nodes.gres if name == kind and model}
    accelerators: dict[str, Any] = {} if kind is None else {"accelerators": nodes.accelerators(kind)}
    if len(types) == 1:
        accelerators["type"] = types.pop()
    # Rounded down: jobs may request less than there is, never more.
    memory = {"memory_gb": nodes.memory_mb // _MB_PER_GB} if nodes.memory_mb >= _MB_PER_GB else {}
    threads = {} if nodes.threads_per_core == 1 else {"threads_per_core": nodes.threads_per_core}
    cpus = {"cpus": nodes.cpus, **threads}
    return {"count": nodes.count, "accelerator": kind or "cpu", **accelerators, **cpus, **memory}


def _limits(partition: Partition, words: Mapping[str, str]) -> dict[str, Any]:
    nodes = {} if partition.max_nodes is None else {"max_nodes": partition.max_nodes}
    time = words.get("MaxTime", partition.max_time)
    return {**nodes, **({} if time in ("UNLIMITED", "INFINITE") else {"max_time": time})}


def _accelerators(nodes: Nodes) -> Iterator[str]:
    if any(nodes.accelerators(one) for one in _ACCELERATORS):
        yield "request: gres                     # Slurm counts them as a GRES; some sites want gpus-per-node"


def _account(settings: Mapping[str, str]) -> Iterator[str]:
    if "associations" in settings.get("AccountingStorageEnforce", "") or "limits" in settings.get(
        "AccountingStorageEnforce", ""
    ):
        yield "  # account: abc123                # fill in: the account to charge, which this cluster demands"
        yield "required_directives: [account]"
    else:
        yield "  # account: abc123                # optional: the account to charge; this cluster demands none"


def _site(settings: Mapping[str, str]) -> dict[str, Any]:
    version = _RELEASE.match(settings.get("SLURM_VERSION", ""))
    plugins = settings.get("TaskPlugin", "").replace("task/", "").split(",")
    enforced = settings.get("AccountingStorageEnforce", "none")
    return {
        **({"version": version.group()} if version else {}),
        "task_plugin": next((name for name in ("cgroup", "affinity") if name in plugins), "none"),
        "accounting": enforced not in ("none", "(null)", ""),
    }


def _preemption(settings: Mapping[str, str], words: Mapping[str, str]) -> Iterator[str]:
    mode = words.get("PreemptMode") or settings.get("PreemptMode", "OFF")
    ours = next((ours for theirs, ours in _PREEMPTION.items() if theirs in mode.upper()), None)
    # Slurm 23.02 moved it from one to the other.
    parameters = settings.get("SlurmctldParameters", "") + settings.get("PreemptParameters", "")
    if ours == "cancel" and "send_user_signal" in parameters:
        ours = "user-signal"
    if ours is None:
        yield f"preemption: requeue               # PreemptMode is {mode}: nobody is preempted here"
    else:
        yield f"preemption: {ours}"


def _unknown() -> Iterator[str]:
    yield "# What Slurm does not say:"
    yield "# runs_dir: /shared/runs            # fill in: a folder that all nodes share, at the same path"
    yield "# data_dir: /shared/data            # optional: prepared data sets, at the same path on every node"
    yield "# python: /shared/venvs/torch/bin/python  # optional: an interpreter with torch, if not python3 of the PATH"
    yield "# prologue: [module load cuda/12]   # optional: shell run before the job"
    yield "# container: {runtime: apptainer, image: /shared/images/trainjob.sif}   # optional: what ranks run inside of"
    yield "# network: {interface: ib0}         # optional: the network all nodes share, where there are several"
