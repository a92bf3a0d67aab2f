"""The three kinds of cluster file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, model_validator

from trainjob.cluster import hostlist
from trainjob.cluster.common import (
    Container,
    Count,
    DirectiveName,
    Line,
    PlainText,
    SlurmTime,
    Strict,
    Word,
    breach,
)
from trainjob.cluster.ipu_place import IpuPlace
from trainjob.cluster.place import Place
from trainjob.cluster.provisioning import Hosts


class PodCluster(IpuPlace):
    """An IPU-POD: hosts that share IPUs, launched by poprun."""

    kind: Literal["ipu-pod"] = Field(description="ipu-pod: hosts that share IPUs, launched by poprun.")
    ipus: Count = Field(description="IPUs of the partition; a power of two.")
    hosts: Hosts | None = Field(None, description="Host names: pod-host[1-4] as Slurm writes ranges, or a list.")
    host_count: Count | None = Field(None, description="How many hosts, while their names are not known.")
    ilds: Count | None = Field(None, description="IPU-Link domains. Absent: one per 64 IPUs.")

    @model_validator(mode="after")
    def _hosts_are_known_or_counted(self) -> PodCluster:
        names = self.host_names
        if names is None and self.host_count is None:
            raise breach("hosts", "is missing: give hosts: pod-host[1-4], or host_count: 4 while names are not known")
        if names is not None and self.host_count not in (None, len(names)):
            raise breach("host_count", f"is {self.host_count} and hosts names {len(names)} hosts: take host_count out")
        return self

    @property
    def host_names(self) -> tuple[str, ...] | None:
        """The hosts by name, in order; None while only their number is known."""
        return None if self.hosts is None else hostlist.expand(self.hosts)


class Nodes(Strict):
    """The nodes of one Slurm partition, all alike."""

    count: Count = Field(description="Nodes there are.")
    accelerator: Literal["gpu", "ipu", "cpu"] = Field("cpu", description="What a rank trains on.")
    accelerators: int = Field(0, ge=0, description="Accelerators of one node.")
    type: Word | None = Field(None, description="Type name in the GRES (a100); absent where the site has none.")
    cpus: Count = Field(description="CPUs of one node.")
    memory_gb: Count | None = Field(None, description="Memory of one node that jobs may use, in GB.")

    @model_validator(mode="after")
    def _accelerators_fit_their_kind(self) -> Nodes:
        if (self.accelerator == "cpu") != (self.accelerators == 0):
            raise breach(
                "accelerators",
                f"is {self.accelerators} and accelerator is {self.accelerator}: "
                "cpu nodes have 0, gpu and ipu nodes at least 1",
            )
        return self


class Limits(Strict):
    """What the site lets one job have."""

    max_nodes: Count | None = Field(None, description="Nodes one job may have.")
    max_time: SlurmTime | None = Field(None, description='Longest time limit, as Slurm writes it: "24:00:00".')


class TimeLimitSignal(Strict):
    """The signal that asks a job to checkpoint before its time limit."""

    to: Literal["steps", "batch"] = Field(
        "steps", description="steps: to the ranks; batch: to the job script, which passes it on."
    )
    margin_s: Count = Field(
        120, le=65535, description="Seconds between it and the time limit: a checkpoint's time, and a minute more."
    )


_ASKS_FOR = {"gpus-per-node": "gpu", "ipus": "ipu"}


class SlurmCluster(IpuPlace):
    """A partition of a cluster that Slurm schedules."""

    kind: Literal["slurm"] = Field(description="slurm: a partition of a cluster that Slurm schedules.")
    nodes: Nodes = Field(description="The nodes of the partition.")
    limits: Limits = Field(Limits(), description="What the site lets one job have.")
    request: Literal["gres", "gpus-per-node", "ipus", "none"] = Field(
        "gres", description="How this site asks for accelerators."
    )
    directives: dict[DirectiveName, Line | int | bool] = Field(
        {}, description="Any sbatch option by its long name; true is a bare flag, false is absent."
    )
    required_directives: list[DirectiveName] = Field([], description="Options this site refuses to do without.")
    time_limit: SlurmTime | None = Field(None, description='Time limit of a job: "04:00:00".')
    time_limit_signal: TimeLimitSignal = Field(
        TimeLimitSignal(), description="The signal that asks a job to checkpoint before its time limit."
    )
    preemption: Literal["requeue", "cancel", "user-signal"] = Field(
        "requeue", description="What this site does to preempted jobs."
    )
    python: Line | None = Field(None, description="Interpreter that has torch. Absent: python3 of the job's PATH.")

    @model_validator(mode="after")
    def _ipus_are_spoken_of_where_there_are_some(self) -> SlurmCluster:
        kind = self.nodes.accelerator
        for key in ("vipu", "sdk", "poprun"):
            if key in self.model_fields_set and kind != "ipu":
                raise breach(key, f"is for IPUs, and nodes.accelerator is {kind}: take one of them out")
        if "request" in self.model_fields_set and _ASKS_FOR.get(self.request, kind) != kind:
            raise breach("request", f"is {self.request}, and nodes.accelerator is {kind}: take request: gres or none")
        return self

    @model_validator(mode="after")
    def _slurm_reads_the_path_as_it_stands(self) -> SlurmCluster:
        if "\\" in (self.runs_dir or ""):
            raise breach(
                "runs_dir", f"is {self.runs_dir}, and Slurm reads a backslash in a path in its own way: take it out"
            )
        return self


class LocalCluster(Place):
    """This machine."""

    kind: Literal["local"] = Field(description="local: this machine.")
    accelerator: Literal["cpu", "gpu"] = Field("cpu", description="What a rank trains on.")
    accelerators: int = Field(0, ge=0, description="GPUs of this machine; 0 on cpu.")
    max_instances: Count | None = Field(
        None, description="Most processes that may train here. Absent: no limit on cpu."
    )
    python: Line | None = Field(None, description="Interpreter that has torch. Absent: the one that runs trainjob.")

    @model_validator(mode="after")
    def _accelerators_fit_their_kind(self) -> LocalCluster:
        if (self.accelerator == "cpu") != (self.accelerators == 0):
            raise breach(
                "accelerators",
                f"is {self.accelerators} and accelerator is {self.accelerator}: cpu means 0, gpu means at least 1",
            )
        return self


Cluster = PodCluster | SlurmCluster | LocalCluster


def ipu_place(cluster: Cluster) -> IpuPlace | None:
    """Return `cluster` where poprun starts its ranks; None where they have no IPUs."""
    if isinstance(cluster, SlurmCluster):
        return cluster if cluster.nodes.accelerator == "ipu" else None
    return cluster if isinstance(cluster, PodCluster) else None


def interpreter(cluster: Cluster) -> str | None:
    """Return the interpreter of tasks that the file names: python:, else that of the SDK's virtualenv."""
    own = None if isinstance(cluster, PodCluster) else cluster.python
    sdk = cluster.sdk if isinstance(cluster, IpuPlace) else None
    return own or (sdk.python if sdk else None)


CLUSTER: TypeAdapter[Cluster] = TypeAdapter(Annotated[Cluster, Field(discriminator="kind")])
KINDS: dict[str, type[PodCluster] | type[SlurmCluster] | type[LocalCluster]] = {
    "ipu-pod": PodCluster,
    "slurm": SlurmCluster,
    "local": LocalCluster,
}

__all__ = [
    "CLUSTER",
    "KINDS",
    "Cluster",
    "Container",
    "LocalCluster",
    "PlainText",
    "PodCluster",
    "SlurmCluster",
    "interpreter",
    "ipu_place",
]
