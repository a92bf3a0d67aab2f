"""Describes a private Slurm, and derives it from a cluster file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from trainjob.kinds.slurm.model import SlurmCluster

_MB_PER_GB = 1024  # as sbatch reads --mem=1G
_PLENTY_MB = 1024 * _MB_PER_GB
_GRACE_S = 60  # that a preempted job has
_SPARE_NODES = 1  # for a job that starts again after a node has failed
_WORDS = re.compile(r"(?<![*:\w.-])\w[\w.-]*", re.ASCII)

# Fast, for a person who is waiting; no site would set these.
SCHEDULER = "sched_interval=1,bf_interval=1"
DEFAULT_PARTITION = "rehearsal"
PREEMPTING_PARTITION = "trainjob-urgent"
# A site's word for preemption -> PreemptMode, and whether the job's own signal is sent.
_PREEMPTION = {"requeue": ("REQUEUE", False), "cancel": ("CANCEL", False), "user-signal": ("CANCEL", True)}


@dataclass(frozen=True)
class SlurmPartition:
    """One partition over all nodes."""

    name: str
    min_nodes: int = 0
    max_nodes: int | None = None
    max_time: str | None = None
    priority_tier: int = 1
    preempt_mode: str = "OFF"
    grace_s: int = 0


@dataclass(frozen=True)
class NodeGroup:
    """Consecutive nodes that are alike."""

    count: int
    cpus: int
    memory_mb: int
    threads_per_core: int = 1
    gres_type: str | None = None
    gres_count: int = 0
    features: Sequence[str] = ()


@dataclass(frozen=True)
class Description:
    """Nodes, resources, partitions and limits. CPUs and memory are what jobs may request, not what this machine has."""

    nodes: int = 2  # if they are alike; else groups have all of them
    daemons: int | None = None  # nodes that get a daemon; the others are DOWN. None: all
    cpus: int = 4
    memory_mb: int = 16 * _MB_PER_GB
    gres: str | None = None  # gpu, ipu
    gres_count: int = 0  # the most of any node
    other_gres: Mapping[str, str] = field(default_factory=dict)  # of each node, beside accelerators: nvme -> 400
    partitions: Sequence[SlurmPartition] = (SlurmPartition(DEFAULT_PARTITION),)
    licenses: str | None = None
    release: str | None = None  # of releases.SUITES. None: the installed Slurm
    task_plugin: str = "none"  # none | affinity: who binds tasks to CPUs. affinity: no more CPUs than this machine has
    accounting: bool = False  # slurmdbd and a database, with the account and QOS that the cluster file names
    account: str | None = None
    qos: str | None = None
    default_mb_per_cpu: int | None = None  # of a job that asks for no memory. None: all of a node's
    settings: Mapping[str, str] = field(default_factory=dict)  # of slurm.conf; they override ours
    groups: Sequence[NodeGroup] = ()  # all nodes, in order. Without groups they are alike, as given above
    # A folder of this machine, and where jobs find it: they may write there, and change nothing here.
    # With any, the home is covered likewise, and everything else can't be written to, but for folders of temporary
    # files and `writable`.
    overlays: Sequence[tuple[str, str]] = ()
    writable: Sequence[str] = ()
    empty_files: Sequence[str] = ()  # that jobs find, where overlays are given
    has_every_address: bool = False  # this machine answers at all of them, as nodes of the cluster would at theirs

    @property
    def node_groups(self) -> tuple[tuple[NodeGroup, tuple[str, ...]], ...]:
        """The groups of nodes, each with the names of its nodes: a single group if all are alike."""
        alike = NodeGroup(count=self.nodes, cpus=self.cpus, memory_mb=self.memory_mb, gres_count=self.gres_count)
        names = iter(self.node_names)
        return tuple((group, tuple(islice(names, group.count))) for group in self.groups or (alike,))

    @property
    def in_words(self) -> str:
        """The number of nodes, what each has, and how many of them have a daemon."""
        each = [
            f"{group.count} nodes" + (f" with {group.gres_count} {self.gres} each" if self.gres else "")
            for group, _ in self.node_groups
        ]
        return f"{' and '.join(each)}, {len(self.nodes_at_work)} of them with a daemon"

    @property
    def node_names(self) -> tuple[str, ...]:
        """All nodes, in order."""
        count = sum(group.count for group in self.groups) or self.nodes
        return tuple(f"node{number}" for number in range(1, count + 1))

    @property
    def nodes_at_work(self) -> tuple[str, ...]:
        """The nodes that have a daemon."""
        return self.node_names[: self.daemons]


def description_of(
    cluster: SlurmCluster, nodes_needed: int, *, release: str | None = None, accounting: bool = False
) -> Description:
    """Return the digital twin of a cluster file: its nodes, GRES, partitions and limits.

    Of another release than the installed one if given. With `accounting` where this machine can have it.
    """
    by_group = [cluster.of_group(one) for one in cluster.groups]
    groups = tuple(
        NodeGroup(
            count=one.node.count,
            cpus=one.node.cpus,
            memory_mb=_PLENTY_MB if one.node.memory_gb is None else one.node.memory_gb * _MB_PER_GB,
            threads_per_core=one.node.threads_per_core,
            gres_type=one.node.type,
            gres_count=one.node.accelerators,
            features=tuple(dict.fromkeys(_WORDS.findall(_text(one, "constraint") or ""))),
        )
        for one in by_group
    )
    limits, count = cluster.limits, sum(group.count for group in groups)
    mode, user_signal = _PREEMPTION[cluster.preemption]
    has_cpus = max(group.cpus for group in groups) <= (os.cpu_count() or 1)
    texts = [_text(one, "partition") or DEFAULT_PARTITION for one in by_group]
    partitions = [
        SlurmPartition(name, limits.min_nodes, limits.max_nodes, limits.max_time, preempt_mode=mode, grace_s=_GRACE_S)
        for name in dict.fromkeys(name for text in texts for name in text.split(","))
    ]
    return Description(
        daemons=min(count, nodes_needed + _SPARE_NODES),
        gres=None if cluster.node.accelerator == "cpu" else cluster.node.gres_name,
        gres_count=max(group.gres_count for group in groups),
        other_gres={
            name: count.rpartition(":")[2] or "1"
            for entry in (_text(cluster, "gres") or "").split(",")
            for name, _, count in [entry.partition(":")]
            if name not in ("", "gpu", cluster.node.gres_name)
        },
        partitions=(*partitions, SlurmPartition(PREEMPTING_PARTITION, priority_tier=10)),
        licenses=_text(cluster, "licenses"),
        release=release,
        task_plugin="affinity" if binds(cluster) and has_cpus else "none",
        accounting=accounting,
        account=_text(cluster, "account"),
        qos=_text(cluster, "qos"),
        settings={"SlurmctldParameters": "preempt_send_user_signal"} if user_signal else {},
        groups=groups,
    )


def binds(cluster: SlurmCluster) -> bool:
    """Return whether the site's Slurm binds tasks to CPUs."""
    return cluster.slurm.task_plugin != "none"


def _text(cluster: SlurmCluster, option: str) -> str | None:
    value = cluster.directives.get(option)
    return None if value is None or isinstance(value, bool) else str(value)
