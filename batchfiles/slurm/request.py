"""A batch file's request to Slurm, as far as its directives and a cluster file tell, and the facts of that file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from batchfiles.bash.values import number
from batchfiles.slurm.directives import Header
from trainjob.cluster import slurm_text

GPU_NAMES = ("gpu", "dcu", "npu", "mlu", "hcu", "xpu", "gcd", "hpu")


def gres_entries(text: str) -> list[str]:
    """Return the entries of --gres, those of accelerators first."""
    entries = [entry for entry in text.split(",") if entry]
    return sorted(entries, key=lambda entry: entry.partition(":")[0].lower() not in GPU_NAMES)


def accelerator_gres(header: Header, text: str | None) -> str:
    """Return the entry of the --gres `text` that asks for accelerators; empty if it asks for something beside them."""
    entry = next(iter(gres_entries(text or "")), "")
    others = any(header.value(name) for name in ("gpus-per-node", "gpus-per-task", "gpus"))
    return entry if entry.partition(":")[0].lower() in GPU_NAMES or not others else ""


@dataclass(frozen=True)
class SiteFacts:
    """Facts of a cluster; none where no cluster file was named."""

    accelerators: int = 0
    cpus: int | None = None
    nodes: int | None = None  # that there are
    max_nodes: int | None = None  # of a job
    max_time_s: int | None = None
    release: tuple[int, int] | None = None  # of Slurm
    partition: str | None = None
    required: tuple[str, ...] = ()  # directives without which this site refuses a job

    @property
    def srun_inherits_cpus(self) -> bool:
        """True if srun takes over --cpus-per-task: not from Slurm 22.05 to 24.05."""
        return self.release is not None and not (22, 5) <= self.release < (24, 11)


def site_of(cluster: Any) -> SiteFacts:
    """Return the facts of a cluster of kind slurm."""
    groups = cluster.nodes if isinstance(cluster.nodes, list) else [cluster.nodes]
    release = cluster.slurm.version if cluster.slurm else None
    partition = cluster.directives.get("partition")
    return SiteFacts(
        accelerators=max(group.accelerators for group in groups),
        cpus=max(group.cpus for group in groups),
        nodes=sum(group.count for group in groups),
        max_nodes=cluster.limits.max_nodes or sum(group.count for group in groups),
        max_time_s=None if cluster.limits.max_time is None else slurm_text.seconds(cluster.limits.max_time),
        release=None if release is None else (int(release.split(".")[0]), int(release.split(".")[1])),
        partition=None if partition is None else str(partition),
        required=tuple(cluster.required_directives),
    )


@dataclass(frozen=True)
class RequestedResources:
    """Figures; None where the file leaves them to its site or to the command line of sbatch."""

    nodes: int | None  # the least number, if it is a range
    tasks: int | None
    tasks_per_node: int | None
    cpus_per_task: int | None
    gpus_per_node: int | None
    gpus_per_task: int | None
    gpus: int | None  # of all nodes
    exclusive: bool

    @property
    def several_nodes(self) -> bool:
        """True if the file certainly asks for more than one node."""
        return (self.nodes or 1) > 1

    @property
    def gpus_of_all_nodes(self) -> int:
        """The GPUs of all nodes together, where the file counts them so; else 0."""
        return self.tasks * self.gpus_per_task if self.tasks and self.gpus_per_task else self.gpus or 0

    def gpus_of_node(self, nodes: int) -> int:
        """Return the GPUs that a file asks for on each of so many nodes; 0 if it names none."""
        return self.gpus_per_node or -(-self.gpus_of_all_nodes // nodes)

    @property
    def slurm_variables(self) -> dict[str, str]:
        """The variables that Slurm sets in the batch shell, and whose values the file tells."""
        figures = {
            ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"): self.nodes,
            ("SLURM_GPUS_ON_NODE",): self.gpus_per_node,
        }
        stated = {
            ("SLURM_NTASKS", "SLURM_NPROCS"): self.tasks,
            ("SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE"): self.tasks_per_node,
            ("SLURM_CPUS_PER_TASK",): self.cpus_per_task,
            ("SLURM_GPUS_PER_TASK",): self.gpus_per_task,
        }
        known = {name: str(value) for names, value in (figures | stated).items() for name in names if value}
        # In the batch shell, which is the first task of the first node.
        return known | dict.fromkeys(("SLURM_PROCID", "SLURM_NODEID", "SLURM_LOCALID"), "0")


def request_of(header: Header, site: SiteFacts) -> RequestedResources:
    """Return what `header` asks for; a job that takes whole nodes has all their GPUs."""
    nodes = number((header.value("nodes") or "").partition("-")[0])
    tasks = number(header.value("ntasks"))
    per_node = number(header.value("ntasks-per-node"))
    gpus_per_task = _count(header.value("gpus-per-task"))
    if per_node is None and tasks is not None and nodes:
        per_node = -(-tasks // nodes)
    if per_node is not None and nodes:
        tasks = per_node * nodes if tasks is None else tasks
        per_node = min(per_node, -(-tasks // nodes))  # it is the most of a node where --ntasks is stated, too
    all_gpus = _count(header.value("gpus"))
    gpus = _gpus_per_node(header, nodes, per_node, gpus_per_task, all_gpus)
    exclusive = header.value("exclusive") is not None and header.value("exclusive") != "user"
    if gpus is None and exclusive:
        gpus = site.accelerators or None
    if per_node is None and gpus and (per_gpu := number(header.value("ntasks-per-gpu"))):
        per_node = per_gpu * gpus
        tasks = per_node * nodes if nodes else tasks
    cpus = number(header.value("cpus-per-task"))
    return RequestedResources(nodes, tasks, per_node, cpus, gpus, gpus_per_task, all_gpus, exclusive=exclusive)


def _gpus_per_node(
    header: Header, nodes: int | None, per_node: int | None, per_task: int | None, all_gpus: int | None
) -> int | None:
    for entry in (header.value("gres") or "").split(","):
        if entry.partition(":")[0].lower() in GPU_NAMES:
            return _count(entry.partition(":")[2] or "1")
    if (stated := header.value("gpus-per-node")) is not None:
        return _count(stated)
    if all_gpus is not None:
        return None if nodes is None and all_gpus > 1 else -(-all_gpus // (nodes or 1))
    return None if per_task is None else per_task * (per_node or 1)


def _count(text: str | None) -> int | None:
    """Return the number at the end of "a100:4", "gpu:4(S:0-1)" or "4"; 1 for a type alone."""
    if not text:
        return None
    if any(sign in text for sign in "$<"):
        return None
    last = re.sub(r"\(.*", "", text.split(",")[0]).rpartition(":")[2]
    return number(last) if last[:1].isdigit() else 1
