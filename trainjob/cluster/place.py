"""The keys that every kind of cluster has, and those for launching on IPUs: V-IPU, the SDK, poprun."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from trainjob.cluster.common import (
    Container,
    Count,
    DirectiveName,
    Environment,
    EnvironmentName,
    Line,
    Network,
    Number,
    PlainText,
    Port,
    Price,
    Ssh,
    Version,
    Word,
)
from trainjob.cluster.provisioning import Provision
from trainjob.cluster.strict import Rule, Strict, key, required

Verbosity = Annotated[int, Rule(at_least=0, at_most=2)]


@dataclass(frozen=True, kw_only=True)
class Place(Strict):
    """Keys that every kind of cluster has."""

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
    device_memory_gb: Count | None = key(
        None, "Memory of one device in GB; a task that does not fit is then refused before it is queued."
    )
    mean_hours_between_failures: Annotated[float, Rule(above=0)] | None = key(
        None, "Mean hours between two failures of one host, which `checkpoint_every: auto` follows."
    )
    numa_nodes: Count | None = key(None, "NUMA nodes of one host; more instances than these earn a warning.")
    provision: Provision | None = key(None, "What `trainjob provision` installs on the hosts.")


@dataclass(frozen=True, kw_only=True)
class Vipu(Strict):
    """The V-IPU controller and the partition (reference: poprun's --vipu options)."""

    server: Word | None = key(None, "Host of the V-IPU controller.")
    port: Port = key(8090, "Its port; 8090 is poprun's own default.")
    partition: Word | None = key(
        None, "Partition to use, or to create if poprun may; under Slurm %j stands for the job's id."
    )
    allocation: Word | None = key(
        None, "Allocation to create a partition in (a V-IPU cluster before SDK 2.6); %j as in partition."
    )
    timeout_s: Count = key(120, "Seconds that a request may take; 120 is poprun's own default.")
    update_partition: bool | None = key(None, "Let poprun change a partition to fit. Absent: poprun decides.")
    reset_partition: bool | None = key(None, "Reset the partition before the run. Absent: poprun decides.")
    remove_partition: bool | None = key(None, "At the end, remove a partition that poprun made. Absent: it does.")


@dataclass(frozen=True, kw_only=True)
class Sdk(Strict):
    """The Poplar SDK on the hosts."""

    version: Version = required('SDK release, quoted: "3.3.0".')
    path: Line | None = key(None, "Unpacked SDK: the folder whose enable script is sourced.")
    venv: Line | None = key(None, "Virtualenv that has poptorch.")

    @property
    def python(self) -> str | None:
        """The virtualenv's interpreter; None if the file names no virtualenv."""
        return None if self.venv is None else f"{self.venv.rstrip('/')}/bin/python"


@dataclass(frozen=True, kw_only=True)
class Poprun(Strict):
    """How poprun is started. poprun decides whatever is absent."""

    host_list: Literal["comma", "range"] = key(
        "comma", "How hosts are listed for poprun: a,b or a[1-2]; ranges from SDK 2.5 on."
    )
    numa: Literal["spread", "disabled"] | None = key(
        None, "Bind instances to NUMA nodes: --numa-aware before SDK 3.0, --process-placement from 3.0 on."
    )
    print_topology: bool = key(True, "Print hosts, ILDs, instances and replicas as a table.")
    verbosity: Verbosity = key(0, "0: poprun's default; 1: --verbose; 2: --vv.")
    executable_cache: Line | None = key(None, "Folder of compiled executables, on every host.")
    mpi_global_args: list[Line] = key([], "Options for mpirun as a whole: --mca plm_rsh_num_concurrent 4")
    mpi_local_args: list[Line] = key([], "Options for every instance: -x NAME=VALUE")
    forward: list[EnvironmentName] = key([], "Further environment variables to pass to other hosts, by name.")
    options: dict[DirectiveName, Line | int | bool] = key(
        {}, "Any poprun option by its long name; true is yes, false is no."
    )


@dataclass(frozen=True, kw_only=True)
class IpuPlace(Place):
    """Keys of a place that may have IPUs."""

    vipu: Vipu = key(Vipu(), "The V-IPU controller.")
    sdk: Sdk | None = key(None, "The Poplar SDK on the hosts.")
    poprun: Poprun = key(Poprun(), "How poprun is started.")
