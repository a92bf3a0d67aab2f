"""A cluster: the keys that every kind has, and the facts by which all other packages know what kind it is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Annotated, ClassVar, Literal, Self

from trainjob.cluster import slurm_text
from trainjob.cluster.common import (
    Budget,
    Container,
    Count,
    Environment,
    Line,
    Network,
    Number,
    PlainText,
    Poprun,
    Price,
    Sdk,
    Ssh,
    Vipu,
)
from trainjob.cluster.faults import JobError
from trainjob.cluster.job import Job
from trainjob.cluster.nodes import Capacity, Node
from trainjob.cluster.provisioning import Hosts, Provision
from trainjob.cluster.strict import BreachError, Rule, Strict, key, required
from trainjob.contract.paths import USER_DATA

_RUNS_PYTHON = re.compile(r"(?:uv|poetry|pixi|conda|mamba|micromamba) run(?: [\w./@=:+~-]+)+")

Starter = Literal["launcher", "mpirun", "srun", "poprun"]


class Cluster(Strict):
    """A cluster. Each kind is a subclass with keys of its own, and is known by its facts only."""

    kind: str = required("The kind of cluster.")
    ssh: Ssh | None = key(None, "How to reach the cluster. Absent: trainjob runs on it.")
    network: Network = key(Network(), "The network that ranks meet on.")
    runs_dir: Line | None = key(
        None,
        "Folder of run directories, on storage that all hosts share. Absent on local: the user's data folder.",
    )
    share: Literal["none", "group", "all"] = key(
        "none", "Who besides the user may read run directories: none (mode 0700), group (0750) or all (0755)."
    )
    data_dir: Line | None = key(None, "Folder of prepared data sets on every host.")
    env: Environment = key({}, "Environment of every rank: names and text values.")
    secrets_file: Line | None = key(None, "File of NAME=VALUE lines, mode 0600, which is read only when ranks start.")
    prologue: list[PlainText] = key([], "Lines of shell that run before the job: the only key that holds shell.")
    container: Container = key(Container(), "The container that ranks run in.")
    same_packages: Literal["warn", "required"] = key(
        "warn",
        "Hosts with different versions of Python, torch, CUDA, NCCL or driver: warn about them, or refuse them.",
    )
    binding: Literal["numa", "none"] = key(
        "numa", "numa: bind each rank to the CPUs next to its GPU, if the machine reports which they are."
    )
    grace_s: Count = key(30, "Seconds between TERM and KILL when a run is asked to stop: the time of a checkpoint.")
    node_check: bool | None = key(
        None,
        "Before ranks start, check GPUs, data folder, disk and clock of each node, and an all-reduce of all ranks. "
        "Absent: only on GPUs.",
    )
    usage_every_s: Number = key(
        30, "Seconds between two samples of what ranks use (`trainjob usage`); 0: only the first sample."
    )
    price_per_device_hour: Price | None = key(
        None, "Price of one device for an hour, in your currency; `plan` then shows prices."
    )
    budget: Budget | None = key(
        None, "What your runs on this cluster may cost together; `submit` and `resume` refuse more."
    )
    device_memory_gb: Count | None = key(
        None, "Memory of one device in GB; a task that does not fit is then refused before it is queued."
    )
    mean_hours_between_failures: Annotated[float, Rule(above=0)] | None = key(
        None, "Mean hours between two failures of one host, which `checkpoint_every: auto` follows."
    )
    numa_nodes: Count | None = key(None, "NUMA nodes of one host; more instances than these earn a warning.")
    provision: Provision | None = key(None, "What `trainjob provision` installs on the hosts.")

    # -- facts: a kind overrides those in which it differs ----------------------------------------

    has_scheduler: ClassVar[bool] = False  # Slurm starts jobs, and again after an interruption
    is_shared: ClassVar[bool] = True  # with other users
    trains_here: ClassVar[bool] = False  # its ranks run on the machine that runs trainjob
    back_end: ClassVar[str] = "detached"
    starter: ClassVar[Starter] = "mpirun"  # of ranks that are not on IPUs
    hosts_are_named: ClassVar[bool] = False  # by the cluster file, not chosen by a scheduler
    hosts_are_given: ClassVar[bool] = False  # by a scheduler when a job begins, so that none can be asked before
    packs: ClassVar[bool] = False  # the elements of an array into one job
    holds_nodes: ClassVar[bool] = False  # for runs that begin in its jobs, which start no ranks themselves
    by_hand: ClassVar[str] = "bash {folder}/{script}"  # the command line that starts a rendered script
    accelerator_key: ClassVar[str] = "nodes.accelerator"

    @property
    def capacity(self) -> Capacity:
        """The hosts and devices that jobs may use."""
        raise NotImplementedError

    @property
    def accelerator(self) -> str:
        """The device that a rank trains on: gpu, ipu or cpu."""
        return self.capacity.device_word.lower()

    @property
    def ranks_by(self) -> Starter:
        """The program that starts the ranks, unless the engine needs mpirun."""
        return "poprun" if self.ipu_keys is not None else self.starter

    @property
    def needs(self) -> Mapping[str, object]:
        """The value of each key path that `submit` needs."""
        return {}

    @property
    def missing_facts(self) -> tuple[str, ...]:
        """The key paths that `submit` needs and this cluster lacks."""
        return tuple(path for path, value in self.needs.items() if not value)

    @property
    def draft(self) -> str:
        """The catalog's file from which `cluster init` drafts one like this."""
        raise NotImplementedError

    @property
    def runs_folder(self) -> str:
        """The folder of run directories where it runs: `runs_dir`, or one of the user's own."""
        return self.runs_dir or ("~/trainjob-runs" if self.ssh else f"{USER_DATA}/trainjob/runs")

    @property
    def host_names(self) -> tuple[str, ...] | None:
        """The names of the hosts in order; None if they are not known before the job runs."""
        return None

    def names_of_hosts(self, count: int) -> tuple[str, ...]:
        """Return the names of the first `count` hosts; host-1, host-2, … if they are not known before the job runs."""
        known = self.host_names
        return tuple(f"host-{number}" for number in range(1, count + 1)) if known is None else known[:count]

    @property
    def host_node(self) -> Node | None:
        """The accelerators, CPUs and memory of one host, as far as all hosts have the same; None if unknown."""
        return None

    @property
    def accelerators_per_host(self) -> int | None:
        """The largest number of accelerators on one host; None if the cluster file does not say."""
        return self.host_node.accelerators if self.host_node else None

    @property
    def accelerator_type(self) -> str | None:
        """The name of the type of accelerator (a100); None if the cluster file does not say."""
        return self.host_node.type if self.host_node else None

    @property
    def cpus_per_host(self) -> int | None:
        """The CPUs of one host; None if they are unknown or differ between hosts."""
        return self.host_node.cpus if self.host_node else None

    @property
    def memory_gb_per_host(self) -> int | None:
        """The memory of one host that jobs may use; None if it is unknown or differs between hosts."""
        return self.host_node.memory_gb if self.host_node else None

    def cpus_of_instances(self, instances_per_host: Sequence[int], devices: int) -> tuple[int, ...]:
        """Return the CPUs that an instance with `devices` gets in each group of hosts; empty if only the host knows."""
        del instances_per_host, devices
        return ()

    @property
    def interpreter(self) -> str | None:
        """The interpreter that the file names for tasks."""
        raise NotImplementedError

    @property
    def interpreter_words(self) -> tuple[str, ...]:
        """The words of `uv run python` and the like, which tell a job its interpreter; empty for a program or path."""
        return tuple((self.interpreter or "").split()) if _RUNS_PYTHON.fullmatch(self.interpreter or "") else ()

    @property
    def interpreter_key(self) -> str:
        """The key that names the interpreter, for messages."""
        return "python:"

    @property
    def venv(self) -> str | None:
        """The virtualenv of the interpreter; None if the file does not name one."""
        path = PurePosixPath(self.interpreter or "")
        return str(path.parent.parent) if path.is_absolute() and path.parent.name == "bin" else None

    @property
    def ipu_keys(self) -> IpuCluster | None:
        """The cluster with its keys for IPUs, if its ranks train on these; else None."""
        return None

    @property
    def partition(self) -> str | None:
        """The scheduler's partition; None without one, or if the scheduler chooses."""
        return None

    def time_limit_of(self, job: Job) -> str | None:
        """Return the time limit of `job`, as Slurm writes it; None without one."""
        del job
        return None

    @property
    def longest_time(self) -> str | None:
        """The longest time limit that the site allows."""
        return None

    @property
    def stop_margin_s(self) -> int:
        """Seconds between the request to stop and the time limit; 0 without a scheduler."""
        return 0

    @property
    def job_environment(self) -> Literal["caller", "clean", "login"]:
        """The environment of a job script: that of the shell that starts it, a clean one, or that of a login shell."""
        return "caller"

    @property
    def restarts_preempted(self) -> bool:
        """Whether its scheduler starts a job again that it has preempted."""
        return False

    @property
    def states_margin(self) -> bool:
        """Whether the cluster file states the margin."""
        return False

    def with_margin(self, margin_s: int) -> Self:
        """Return the cluster with another margin between the request to stop and the time limit."""
        raise NotImplementedError

    def takes_whole_nodes(self, _job: Job) -> bool:
        """Return whether this file, and not the job, asks for devices beside those of a plan."""
        return False

    def with_directives(self, options: Mapping[str, object]) -> Self | None:
        """Return the cluster with these options of sbatch over its own; None if it takes none."""
        del options
        return None

    @classmethod
    def of(cls, cluster: Cluster) -> Self:
        """Return `cluster`, which a table has chosen as one of this kind, with the keys of its kind."""
        if not isinstance(cluster, cls):
            raise TypeError(cluster.kind)
        return cluster


class IpuCluster(Cluster):
    """A cluster that may have IPUs."""

    vipu: Vipu = key(Vipu(), "The V-IPU controller.")
    sdk: Sdk | None = key(None, "The Poplar SDK on the hosts.")
    poprun: Poprun = key(Poprun(), "How poprun is started.")


class NamedHosts(Cluster):
    """A cluster whose file names its hosts, or only counts them while their names are not known."""

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

    hosts_are_named = True

    @property
    def host_names(self) -> tuple[str, ...] | None:
        """The names of the hosts in order; None while only their number is known."""
        return None if self.hosts is None else slurm_text.expand(self.hosts)

    @property
    def number_of_hosts(self) -> int:
        """The number of hosts."""
        return self.host_count or len(self.host_names or ())


# Option of sbatch -> the job's setting for it. A cluster file has these options in its directives.
OF_SETTINGS = {"time-min": "time_min", "hint": "hint"}


def with_directives(name: str, cluster: Cluster, job: Job) -> Cluster:
    """Return the cluster called `name`, with the job's own sbatch options overriding the file's. Raises JobError."""
    settings = {option: getattr(job, setting) for option, setting in OF_SETTINGS.items()}
    own = {**job.directives, **{option: value for option, value in settings.items() if value is not None}}
    if not own:
        return cluster
    changed = cluster.with_directives(own)
    if changed is None:
        option = next(iter(own))
        flag = f"--directive {option}" if option in job.directives else f"--{option}"
        raise JobError(
            f"{flag} is an option of sbatch, and cluster {name} is of kind {cluster.kind}",
            "leave it out, or choose a cluster of kind slurm",
        )
    return changed
