"""Drafts a cluster file from what sinfo and scontrol of a live Slurm report, and marks what they leave open."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import yaml

from trainjob.cluster.writing import comment, read_back, scalar
from trainjob.contract import package
from trainjob.contract.errors import UserError, did_you_mean
from trainjob.machines.machine import Machine
from trainjob.machines.slurm import partitions
from trainjob.machines.slurm.partitions import Partition, PartitionNodes, SlurmAccount

_MB_PER_GB = 1024
_ACCELERATORS = ("gpu", "ipu")
_RELEASE = re.compile(r"\d+\.\d+")
_PREEMPTION = {"REQUEUE": "requeue", "CANCEL": "cancel", "SUSPEND": "cancel"}
_NO_PYTHON = (
    "# python: /shared/venvs/torch/bin/python  # optional: an interpreter with torch, if not python3 of a job's PATH"
)
_UNKNOWN = (
    "# data_dir: /shared/data            # optional: prepared data sets, at the same path on every node",
    "# prologue: [module load cuda/12]   # optional: shell run before the job",
    "# container: {runtime: apptainer, image: /shared/images/trainjob.sif}   # optional: what ranks run inside of",
    "# network: {interface: ib0}         # optional; absent: that of a node's own name, or where that means 127.0.1.1",
    "#                                   # (as by default on Debian), the one that reaches the first node",
)


def active_python(machine: Machine) -> str | None:
    """Return the path of the interpreter that the user's shell on `machine` finds; None for the system's own.

    A job has the system's PATH, so a virtualenv or conda environment that is active there must be written down.
    """
    return machine.run(package.program_command(__file__, "active_python"), check=False).text.strip() or None


def text(name: str, machine: Machine, ssh: str | None, partition_name: str | None, python: str | None = None) -> str:
    """Return the text of a cluster file for one partition of the cluster that `machine` belongs to.

    `python` is the interpreter of its jobs; absent: the active one. Raises UserError: an unknown partition, no Slurm, a
    machine that can't be reached, an answer that is no text.
    """
    partition = _chosen(partitions.partitions(machine), partition_name, machine.name)
    settings = partitions.configuration(machine)
    words = partitions.settings_of(machine, partition.name)
    most_common = max(partition.nodes, key=lambda one: one.count)
    nodes = partitions.allowed_nodes(machine, partition.name, most_common, settings, words)
    shared = machine.run(package.program_command(__file__, "shared_folder"), check=False).text.splitlines()
    of_network = (shared[0], shared[1]) if len(shared) == 2 else None
    site = DraftedSite(
        name,
        ssh,
        partition,
        nodes,
        settings,
        words,
        partitions.account(machine, settings),
        of_network,
        active_python(machine) if python is None else python,
    )
    meant: dict[str, object] = {}
    return read_back(list(_lines(site, meant)), meant)


@dataclass(frozen=True)
class DraftedSite:
    """What Slurm says of a partition, and the machine of the user's own folders."""

    name: str
    ssh: str | None
    partition: Partition
    nodes: PartitionNodes  # what jobs may have of the most common ones
    settings: Mapping[str, str]  # of slurm.conf
    words: Mapping[str, str]  # of the partition
    account: SlurmAccount
    shared: tuple[str, str] | None  # a network file system's type, and the user's own folder on it
    python: str | None


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


def _lines(site: DraftedSite, meant: dict[str, object]) -> Iterator[str]:
    """Yield the lines of the file, and put into `meant` what they say."""

    def stated(fields: Mapping[str, object]) -> list[str]:
        meant.update(fields)
        text: str = yaml.safe_dump(dict(fields), sort_keys=False, default_flow_style=False)
        return text.removesuffix("\n").split("\n")

    partition, settings, words = site.partition, site.settings, site.words
    version = settings.get("SLURM_VERSION", "")
    yield from comment(f"{site.name}: drafted from Slurm {version}, partition {partition.name}.")
    if len(partition.nodes) > 1:
        yield f"# Its nodes are of {len(partition.nodes)} kinds; these are the most common ones. For others set a"
        yield "# constraint: in directives, and nodes: to what those have."
    time = words.get("MaxTime", partition.max_time)
    min_nodes = {"min_nodes": partition.min_nodes} if partition.min_nodes > 1 else {}
    max_nodes = {} if partition.max_nodes is None else {"max_nodes": partition.max_nodes}
    max_time = {} if time in ("UNLIMITED", "INFINITE") else {"max_time": time}
    head = {"kind": "slurm", **({"ssh": {"host": site.ssh}} if site.ssh else {}), "nodes": _nodes(site.nodes)}
    yield from stated({**head, "limits": {**min_nodes, **max_nodes, **max_time}})
    if any(site.nodes.accelerators(one) for one in _ACCELERATORS):
        (request,) = stated({"request": "gres"})
        yield f"{request}                     # Slurm counts them as a GRES; some sites want gpus-per-node"
    yield from stated({"directives": {"partition": partition.name}})
    account = site.account.default
    if site.account.is_demanded and not account:
        yield "  # account: abc123                # fill in: the account to charge, which this cluster demands"
        meant["required_directives"] = ["account"]
        yield "required_directives: [account]"
    elif account:
        note = "# optional: your default account, which is charged without this, or another"
        yield from comment(f"account: {scalar(account, in_line=False):<22} {note}", "  ")
    else:
        yield "  # account: abc123                # optional: the account to charge; this cluster demands none"
    yield '# time_limit: "04:00:00"           # optional: of one job; absent: the partition\'s own default'
    mode, ours = preemption(settings, words)
    (preempted,) = stated({"preemption": ours or "requeue"})
    nobody = () if ours else comment(f"PreemptMode is {mode}: nobody is preempted here")
    yield "               ".join((preempted, *nobody))
    release = _RELEASE.match(version)
    slurm: dict[str, object] = {"version": release.group()} if release else {}
    slurm["task_plugin"] = task_plugin(settings)
    slurm["accounting"] = settings.get("AccountingStorageEnforce", "none") not in ("none", "(null)", "")
    yield from stated({"slurm": slurm})
    if site.shared is None:
        yield "# What Slurm does not say:"
        yield "# runs_dir: /shared/runs            # fill in: a folder that all nodes share, at the same path"
    else:
        kind, folder = site.shared
        yield f"# A folder that all nodes share, at the same path: your own on {kind}."
        yield from stated({"runs_dir": f"{folder}/trainjob-runs"})
        yield "# What Slurm does not say:"
    if site.python in (None, "python3"):
        yield _NO_PYTHON
    else:
        yield "# The interpreter of every rank, which each node must have at this path; its folder comes first on PATH."
        yield from stated({"python": site.python})
    yield from _UNKNOWN


def _nodes(nodes: PartitionNodes) -> dict[str, object]:
    kind = next((one for one in _ACCELERATORS if nodes.accelerators(one)), None)
    fields: dict[str, object] = {"count": nodes.count, "accelerator": kind or "cpu"}
    if kind is not None:
        fields["accelerators"] = nodes.accelerators(kind)
    types = {model for name, model, _ in nodes.gres if name == kind and model}
    if len(types) == 1:
        fields["type"] = types.pop()
    fields["cpus"] = nodes.cpus
    if nodes.threads_per_core != 1:
        fields["threads_per_core"] = nodes.threads_per_core
    # Rounded down: jobs may request less than there is, never more.
    if nodes.memory_mb >= _MB_PER_GB:
        fields["memory_gb"] = nodes.memory_mb // _MB_PER_GB
    return fields


def task_plugin(settings: Mapping[str, str]) -> str:
    """Return our word for the plugin that binds tasks, by the settings of slurm.conf."""
    plugins = settings.get("TaskPlugin", "").replace("task/", "").split(",")
    return next((plugin for plugin in ("cgroup", "affinity") if plugin in plugins), "none")


def preemption(settings: Mapping[str, str], words: Mapping[str, str]) -> tuple[str, str | None]:
    """Return PreemptMode and our word for it; None where nobody is preempted. `words` are those of the partition."""
    mode = words.get("PreemptMode") or settings.get("PreemptMode", "OFF")
    ours = next((ours for theirs, ours in _PREEMPTION.items() if theirs in mode.upper()), None)
    # Slurm 23.02 moved it from one to the other.
    parameters = settings.get("SlurmctldParameters", "") + settings.get("PreemptParameters", "")
    if ours == "cancel" and "send_user_signal" in parameters:
        ours = "user-signal"
    return mode, ours
