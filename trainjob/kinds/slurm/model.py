"""The cluster file of a cluster that Slurm schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from trainjob.cluster.base import IpuCluster
from trainjob.cluster.common import (
    MEMORY_OPTIONS,
    Count,
    DirectiveName,
    Line,
    SlurmTime,
    Version,
    refuse_two_memories,
)
from trainjob.cluster.job import Job
from trainjob.cluster.nodes import Capacity, Node, Nodes
from trainjob.cluster.strict import BreachError, Rule, Strict, key, required
from trainjob.contract.programs.slurm_options import asks_for_devices

Margin = Annotated[int, Rule(at_least=1, at_most=65535)]


class Limits(Strict):
    """The site's limits for one job."""

    min_nodes: Count = key(1, "Fewest nodes that one job may have.")
    max_nodes: Count | None = key(None, "Most nodes that one job may have.")
    max_time: SlurmTime | None = key(None, 'Longest time limit, as Slurm writes it: "24:00:00".')


class TimeLimitSignal(Strict):
    """The signal that asks a job to checkpoint before its time limit."""

    to: Literal["steps", "batch"] = key(
        "batch",
        "batch: to the job script, which asks the ranks that handle it; steps: to all processes, which it may end.",
    )
    margin_s: Margin = key(120, "Seconds between the signal and the time limit: a checkpoint's time and one minute.")


class SlurmSite(Strict):
    """The site's configuration of Slurm, which a rehearsal imitates; `cluster init --from-slurm` reads it."""

    version: Version | None = key(None, 'Slurm\'s version: "24.11". A rehearsal names it; --slurm rehearses on it.')
    task_plugin: Literal["none", "affinity", "cgroup"] = key(
        "none", "The plugin that binds tasks to CPUs: TaskPlugin, without task/. cgroup is rehearsed as affinity."
    )
    accounting: bool = key(False, "Whether jobs need an account that a database knows: AccountingStorageEnforce.")


_ASKS_FOR = {"gpus-per-node": "gpu", "ipus": "ipu"}


class SlurmCluster(IpuCluster):
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

    has_scheduler = True
    hosts_are_given = True
    by_hand = "cd {folder} && sbatch {script}"
    back_end = "slurm"
    starter = "srun"

    def enforce_rules(self) -> None:
        """Raise BreachError for invalid groups, IPU settings without IPUs, and a path that Slurm would change."""
        _enforce_rules_of_groups(self.nodes)
        refuse_two_memories(self.directives)
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
        if self.request == "gpus-per-node" and self.node.gres not in (None, "gpu"):
            raise BreachError(
                "request",
                f"is gpus-per-node, which asks for the GRES gpu, and nodes.gres is {self.node.gres}",
                "take request: gres",
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

    def takes_whole_nodes(self, job: Job) -> bool:
        """Return whether this file's directives, and not those of the job, ask for devices or for whole nodes."""
        own = {name: value for name, value in self.directives.items() if name not in job.directives}
        return any(asks_for_devices(name, value) for name, value in own.items())

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
    def host_node(self) -> Node:
        """A node; of groups, the type of the first and the most accelerators, as their CPUs and memory differ."""
        if not self.has_groups:
            return self.node
        most = max(group.accelerators for group in self.groups)
        return self.node.changed(accelerators=most, cpus=None, memory_gb=None)

    def of_group(self, group: Nodes) -> SlurmCluster:
        """Return the cluster reduced to `group`."""
        return self.with_directives(group.directives).changed(nodes=group)

    @property
    def capacity(self) -> Capacity:
        """The nodes of the partition, as far as one job may have them."""
        nodes, count = self.node, sum(group.count for group in self.groups)
        most, word = min(count, self.limits.max_nodes or count), nodes.accelerator.upper()
        least = min(most, self.limits.min_nodes)
        if self.has_groups:
            return Capacity(word, "node", count, most, None, 1, default_hosts=count, groups=self.groups)
        if word == "IPU":
            return Capacity(word, "node", count, most, nodes.accelerators, 1, most * nodes.accelerators)
        of_rank, each = (self._stated_cpus(devices=1) or 1) * self.threads_left_idle, nodes.accelerators or 1
        by_cpus = nodes.cpus // of_rank
        is_by_cpus = by_cpus < nodes.accelerators or not nodes.accelerators
        return Capacity(
            *(word, "node", count, most, by_cpus if is_by_cpus else nodes.accelerators, each),
            default_hosts=least,
            least_hosts=least,
            cpus_per_slot=of_rank if is_by_cpus else None,
        )

    @classmethod
    def meant_by(cls, unknown: str) -> str:
        """Return where an option of sbatch is written."""
        from trainjob.contract.programs import slurm_options  # read only for a file with mistakes

        name = unknown.replace("_", "-")
        if name in slurm_options.STATED_BY:
            return f"sbatch's {name} is stated by {slurm_options.STATED_BY[name]}"
        known = name in slurm_options.of_program("sbatch")
        return f"an option of sbatch is written under directives: directives: {{{name}: …}}" if known else ""

    @property
    def needs(self) -> Mapping[str, object]:
        """The value of each key path that `submit` needs."""
        # true, a bare flag, states the option; false leaves it out.
        stated = {name: self.directives.get(name, False) is not False for name in self.required_directives}
        needed: dict[str, object] = {f"directives.{name}": is_stated for name, is_stated in stated.items()}
        if self.ipu_keys is not None:
            sdk, vipu = self.sdk, self.vipu
            needed |= {
                # Only a job that makes its own partition needs the server.
                "vipu.server": vipu.server or not vipu.allocation,
                "sdk.path": (sdk and sdk.path) or self.prologue,
                "sdk.venv": (sdk and sdk.venv) or self.python,
                "sdk.version": sdk,
            }
        return {**needed, "runs_dir": self.runs_dir}

    @property
    def draft(self) -> str:
        """The catalog's file from which `cluster init` drafts one like this."""
        return "slurm-gpu" if self.ipu_keys is None else "slurm-ipu"

    @property
    def ipu_keys(self) -> IpuCluster | None:
        """The cluster itself, if its nodes have IPUs."""
        return self if self.node.accelerator == "ipu" else None

    def cpus_of_instances(self, instances_per_host: Sequence[int], devices: int) -> tuple[int, ...]:
        """Return the CPUs that Slurm gives an instance of each group. `devices` are those of one instance."""
        parts = zip(self.groups, instances_per_host, strict=True)
        return tuple(
            dict.fromkeys(self.of_group(group).cpus_per_task(instances, devices) for group, instances in parts)
        )

    def cpus_per_task(self, instances_per_host: int, devices: int) -> int:
        """Return one rank's share of a node's CPUs, at least 1; whole cores if there are enough.

        `devices` are those of one rank: with cpus-per-gpu it gets as many CPUs for each.
        """
        stated = self._stated_cpus(devices)
        if stated is not None:
            return stated
        share = self.node.cpus // self.threads_left_idle // instances_per_host
        in_a_core = self.node.threads_per_core // self.threads_left_idle
        return max(1, share // in_a_core * in_a_core or share)

    def _stated_cpus(self, devices: int) -> int | None:
        """Return the CPUs of a rank with so many devices, if a directive states them."""
        per_gpu, per_task = self.directives.get("cpus-per-gpu"), self.directives.get("cpus-per-task")
        if isinstance(per_gpu, int) and per_gpu > 0:
            return int(per_gpu) * max(1, devices)
        return int(per_task) if isinstance(per_task, int) and per_task > 0 else None

    @property
    def threads_left_idle(self) -> int:
        """The CPUs that a rank occupies for each one it uses: all threads of a core if only one may run on it."""
        options = self.directives
        has_core = options.get("hint") == "nomultithread" or str(options.get("threads-per-core")) == "1"
        return self.node.threads_per_core if has_core else 1

    @property
    def interpreter(self) -> str | None:
        """The interpreter that the file names for tasks: `python`, else that of the SDK's virtualenv."""
        return self.python or (self.sdk.python if self.sdk else None)

    @property
    def interpreter_key(self) -> str:
        """The key that names the interpreter, for messages."""
        return "python:" if self.ipu_keys is None else "python: or sdk.venv:"

    @property
    def partition(self) -> str | None:
        """Slurm's partition; None for its default partition."""
        partition = self.directives.get("partition")
        return partition if isinstance(partition, str) else None

    def time_limit_of(self, job: Job) -> str | None:
        """Return the time limit of `job`, as Slurm writes it; None without one."""
        return job.time_limit or self.time_limit

    @property
    def longest_time(self) -> str | None:
        """The longest time limit that the site allows."""
        return self.limits.max_time

    @property
    def stop_margin_s(self) -> int:
        """Seconds between the request to stop and the time limit."""
        return self.time_limit_signal.margin_s

    @property
    def job_environment(self) -> Literal["caller", "clean", "login"]:
        """A clean environment, with Slurm's standard PATH, or that of the user's login shell."""
        return "login" if self.login_environment else "clean"

    @property
    def restarts_preempted(self) -> bool:
        """Whether Slurm starts a job again that it has preempted."""
        return self.preemption == "requeue"

    @property
    def states_margin(self) -> bool:
        """Whether the cluster file states the margin."""
        return "margin_s" in self.time_limit_signal.stated

    def with_margin(self, margin_s: int) -> SlurmCluster:
        """Return the cluster with another margin between the request to stop and the time limit."""
        return self.changed(time_limit_signal=self.time_limit_signal.changed(margin_s=margin_s))

    def with_directives(self, options: Mapping[str, object]) -> SlurmCluster:
        """Return the cluster with these options of sbatch over its own; one for memory replaces all of its own."""
        replaced = MEMORY_OPTIONS if not MEMORY_OPTIONS.isdisjoint(options) else ()
        kept = {name: value for name, value in self.directives.items() if name not in replaced}
        return self.changed(directives={**kept, **options})


def _enforce_rules_of_groups(nodes: Nodes | Sequence[Nodes]) -> None:
    """Raise BreachError for groups that one job can't use, and for keys that only groups have."""
    if isinstance(nodes, Nodes):
        stated = next((name for name in ("name", "directives") if name in nodes.stated), None)
        if stated is not None:
            raise BreachError("nodes", f"has {stated}, and is not a list of groups", f"take {stated} out")
        return
    if len(nodes) < 2:
        raise BreachError("nodes", f"lists {len(nodes)} group, and there are at least 2", _ALL_ALIKE)
    names = [group.name for group in nodes]
    if None in names or len(set(names)) < len(names):
        shown = ", ".join(name or "(no name)" for name in names)
        raise BreachError("nodes", f"has groups called {shown}", "give each group a different name")
    kinds = {group.accelerator: group.name for group in nodes}
    if len(kinds) > 1:
        shown = " and ".join(f"{name} has accelerator: {kind}" for kind, name in kinds.items())
        raise BreachError("nodes", f"differ in what a rank trains on: {shown}", "give all groups the same")
    if "ipu" in kinds:
        raise BreachError("nodes", "have IPUs, and poprun starts the same number of instances on each host", _ALL_ALIKE)


_ALL_ALIKE = "give the nodes without the dash, as one group of equal nodes"
