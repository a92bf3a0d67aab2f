"""The kinds of cluster file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from trainjob.cluster import hostlist
from trainjob.cluster.common import Container, Count, DirectiveName, Line, Number, PlainText, SlurmTime, Version
from trainjob.cluster.nodes import Node, Nodes, enforce_rules_of_groups
from trainjob.cluster.place import IpuPlace, Place
from trainjob.cluster.provisioning import Hosts
from trainjob.cluster.strict import BreachError, Rule, Strict, key, required
from trainjob.cluster.validation import validated

Margin = Annotated[int, Rule(at_least=1, at_most=65535)]


@dataclass(frozen=True, kw_only=True)
class NamedHosts(Strict):
    """Hosts that the cluster file names, or only counts while their names are not known."""

    hosts: Hosts | None = key(None, "Host names: pod-host[1-4] as Slurm writes ranges, or a list.")
    host_count: Count | None = key(None, "Number of hosts, while their names are not known.")

    def enforce_rules(self) -> None:
        """Raise BreachError if hosts are neither named nor counted, or if the count is wrong."""
        names = self.host_names
        if names is None and self.host_count is None:
            raise BreachError(
                "hosts", "is missing", "give hosts: pod-host[1-4], or host_count: 4 while names are not known"
            )
        if names is not None and self.host_count not in (None, len(names)):
            raise BreachError(
                "host_count", f"is {self.host_count} and hosts names {len(names)} hosts", "take host_count out"
            )

    @property
    def host_names(self) -> tuple[str, ...] | None:
        """The names of the hosts, in order; None while only their number is known."""
        return None if self.hosts is None else hostlist.expand(self.hosts)

    @property
    def number_of_hosts(self) -> int:
        """The number of hosts."""
        return self.host_count or len(self.host_names or ())


@dataclass(frozen=True, kw_only=True)
class PodCluster(NamedHosts, IpuPlace):
    """An IPU-POD: hosts that share IPUs, launched by poprun."""

    kind: Literal["ipu-pod"] = required("ipu-pod: hosts that share IPUs, launched by poprun.")
    ipus: Count = required("IPUs of the partition; a power of two.")
    ilds: Count | None = key(None, "IPU-Link domains. Absent: one per 64 IPUs.")


@dataclass(frozen=True, kw_only=True)
class HostsCluster(NamedHosts, Place):
    """Machines without a scheduler that share a folder, reached over ssh."""

    kind: Literal["hosts"] = required("hosts: machines without a scheduler that share a folder.")
    nodes: Node = key(Node(), "The accelerators, CPUs and memory of each host. Absent: CPUs.")
    python: Line | None = key(
        None, "Interpreter that has torch, at the same path on every host. Absent: python3 of the PATH."
    )

    def enforce_rules(self) -> None:
        """Raise BreachError for hosts that are neither named nor counted, and for IPUs."""
        super().enforce_rules()
        if self.nodes.accelerator == "ipu":
            raise BreachError("nodes", "have IPUs", "hosts with IPUs are of kind ipu-pod")


@dataclass(frozen=True, kw_only=True)
class Limits(Strict):
    """The site's limits for one job."""

    max_nodes: Count | None = key(None, "Most nodes that one job may have.")
    max_time: SlurmTime | None = key(None, 'Longest time limit, as Slurm writes it: "24:00:00".')


@dataclass(frozen=True, kw_only=True)
class TimeLimitSignal(Strict):
    """The signal that asks a job to checkpoint before its time limit."""

    to: Literal["steps", "batch"] = key("steps", "steps: to the ranks; batch: to the job script, which passes it on.")
    margin_s: Margin = key(120, "Seconds between the signal and the time limit: a checkpoint's time and one minute.")


@dataclass(frozen=True, kw_only=True)
class SlurmSite(Strict):
    """How the site configures Slurm, which a rehearsal imitates. `cluster init --from-slurm` reads it from Slurm."""

    version: Version | None = key(None, 'Slurm\'s version: "24.11". A rehearsal names it; --slurm rehearses on it.')
    task_plugin: Literal["none", "affinity", "cgroup"] = key(
        "none", "The plugin that binds tasks to CPUs: TaskPlugin, without task/. cgroup is rehearsed as affinity."
    )
    accounting: bool = key(False, "Whether jobs need an account that a database knows: AccountingStorageEnforce.")


_ASKS_FOR = {"gpus-per-node": "gpu", "ipus": "ipu"}


@dataclass(frozen=True, kw_only=True)
class SlurmCluster(IpuPlace):
    """A partition of a cluster that Slurm schedules."""

    kind: Literal["slurm"] = required("slurm: a partition of a cluster that Slurm schedules.")
    nodes: Nodes | list[Nodes] = required(
        "The nodes of the partition, all alike; or a list of groups, of which each job takes every node."
    )
    limits: Limits = key(Limits(), "The site's limits for one job.")
    request: Literal["gres", "gpus-per-node", "ipus", "none"] = key(
        "gres", "How this site's jobs request accelerators."
    )
    directives: dict[DirectiveName, Line | int | bool] = key(
        {}, "Any sbatch option by its long name; true is a bare flag, false is absent."
    )
    plugin_options: list[DirectiveName] = key(
        [], "Options that plugins of this site add to sbatch: directives may use them."
    )
    query_timeout_s: Annotated[float, Rule(above=0, at_most=600)] = key(
        10.0, "Seconds that one query to Slurm (squeue, scontrol, sacct) may take."
    )
    required_directives: list[DirectiveName] = key([], "Options that this site requires.")
    time_limit: SlurmTime | None = key(None, 'Time limit of a job: "04:00:00".')
    time_limit_signal: TimeLimitSignal = key(
        TimeLimitSignal(), "The signal that asks a job to checkpoint before its time limit."
    )
    preemption: Literal["requeue", "cancel", "user-signal"] = key("requeue", "What this site does to preempted jobs.")
    srun: dict[DirectiveName, Line | int | bool] = key(
        {}, "Any option of srun by its long name (cpu-bind, distribution, mpi, network, wait); true is a bare flag."
    )
    queue_follow_up: bool = key(
        False, "true: queue a follow-up job before the work starts, for sites that never requeue jobs (JobRequeue=0)."
    )
    login_environment: bool = key(
        False, "true: ranks get the variables of the user's login shell, if Slurm runs one. Absent: they don't."
    )
    python: Line | None = key(None, "Interpreter that has torch. Absent: python3 of the job's PATH.")
    slurm: SlurmSite = key(SlurmSite(), "How the site configures Slurm, which a rehearsal imitates.")

    def enforce_rules(self) -> None:
        """Raise BreachError for invalid groups, IPU settings without IPUs, and a path that Slurm would change."""
        enforce_rules_of_groups(self.nodes)
        if self.has_groups and self.queue_follow_up:
            raise BreachError("queue_follow_up", "is true, and nodes is a list of groups", "take one of them out")
        kind = self.node.accelerator
        for section in ("vipu", "sdk", "poprun"):
            if section in self.stated and kind != "ipu":
                raise BreachError(section, f"is for IPUs, and nodes.accelerator is {kind}", "take one of them out")
        if "request" in self.stated and _ASKS_FOR.get(self.request, kind) != kind:
            raise BreachError(
                "request", f"is {self.request}, and nodes.accelerator is {kind}", "take request: gres or none"
            )
        if "\\" in (self.runs_dir or ""):
            raise BreachError(
                "runs_dir", f"is {self.runs_dir}, and Slurm interprets a backslash in a path", "take it out"
            )
        if "%" in (self.runs_dir or ""):
            raise BreachError(
                "runs_dir",
                f"is {self.runs_dir}, and Slurm replaces % in a path by a job's id or a node's name",
                "choose another folder",
            )

    @property
    def node(self) -> Nodes:
        """The nodes if all are alike, else the nodes of the first group."""
        return self.groups[0]

    @property
    def groups(self) -> tuple[Nodes, ...]:
        """The groups of nodes in order; a single one if all nodes are alike."""
        return tuple(self.nodes) if isinstance(self.nodes, list) else (self.nodes,)

    @property
    def has_groups(self) -> bool:
        """Whether a job takes nodes of several groups, as a heterogeneous job of Slurm."""
        return len(self.groups) > 1

    @property
    def most_accelerators(self) -> int:
        """The largest number of accelerators on one node."""
        return max(group.accelerators for group in self.groups)

    def of_group(self, group: Nodes) -> SlurmCluster:
        """Return the cluster reduced to `group`."""
        return self.changed(nodes=group, directives={**self.directives, **group.directives})


@dataclass(frozen=True, kw_only=True)
class LocalCluster(Place):
    """This machine."""

    kind: Literal["local"] = required("local: this machine.")
    accelerator: Literal["cpu", "gpu"] = key("cpu", "What a rank trains on.")
    accelerators: Number = key(0, "GPUs of this machine; 0 on cpu.")
    max_instances: Count | None = key(None, "Most processes that may train at once. Absent: no limit on cpu.")
    python: Line | None = key(None, "Interpreter that has torch. Absent: the one that runs trainjob.")

    def enforce_rules(self) -> None:
        """Raise BreachError for ssh to another machine, and if the number of accelerators contradicts their kind."""
        if self.ssh is not None:
            raise BreachError(
                "ssh",
                f"is {self.ssh.host}, and kind: local is the machine that runs trainjob",
                f"for another machine, give kind: hosts and hosts: [{self.ssh.host}]",
            )
        if (self.accelerator == "cpu") != (self.accelerators == 0):
            raise BreachError(
                "accelerators",
                f"is {self.accelerators} and accelerator is {self.accelerator}",
                "cpu means 0, gpu means at least 1",
            )


Cluster = PodCluster | SlurmCluster | HostsCluster | LocalCluster


def ipu_place(cluster: Cluster) -> IpuPlace | None:
    """Return `cluster` if it has IPUs, so that poprun starts its ranks; else None."""
    if isinstance(cluster, SlurmCluster):
        return cluster if cluster.node.accelerator == "ipu" else None
    return cluster if isinstance(cluster, PodCluster) else None


def interpreter(cluster: Cluster) -> str | None:
    """Return the interpreter that the file names for tasks: `python`, else that of the SDK's virtualenv."""
    own = None if isinstance(cluster, PodCluster) else cluster.python
    sdk = cluster.sdk if isinstance(cluster, IpuPlace) else None
    return own or (sdk.python if sdk else None)


KINDS: dict[str, type[PodCluster] | type[SlurmCluster] | type[HostsCluster] | type[LocalCluster]] = {
    "ipu-pod": PodCluster,
    "slurm": SlurmCluster,
    "hosts": HostsCluster,
    "local": LocalCluster,
}


def cluster_of(values: Mapping[str, Any]) -> Cluster:
    """Return the cluster that a file's keys and values describe; `kind` is one of KINDS. Raises InvalidError."""
    return validated(KINDS[values["kind"]], values)


__all__ = [
    "KINDS",
    "Cluster",
    "Container",
    "HostsCluster",
    "LocalCluster",
    "Nodes",
    "PlainText",
    "PodCluster",
    "SlurmCluster",
    "cluster_of",
    "interpreter",
    "ipu_place",
]
