"""The parts of a plan. They hold computed values; what the user requested stays in the job."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import accumulate

from trainjob.contract.batch import Batch
from trainjob.contract.errors import Problem, UserError


class Refusal(UserError):  # noqa: N818 (the design calls it a refusal)
    """A job that can't run on its cluster: the rule, both numbers, and the cure.

    Each item of `nearest` is one change to the job that cures it; the cure says the same in words.
    """

    code = "refused"

    def __init__(self, rule: str, values: str, cure: str, nearest: tuple[dict[str, int], ...] = ()) -> None:
        super().__init__(f"{rule}: {values}.", cure)
        self.rule = rule
        self.values = values
        self.nearest = nearest


@dataclass(frozen=True)
class Replica:
    """One copy of the model. `devices` are numbers within the partition on IPUs, within the host on GPUs."""

    index: int
    devices: tuple[int, ...]


@dataclass(frozen=True)
class Instance:
    """One process that trains. Instance i of N takes the i-th of N equal slices of every global batch."""

    index: int
    local_index: int
    replicas: tuple[Replica, ...]


@dataclass(frozen=True)
class Host:
    """One machine and the instances on it. Hosts whose names are not known yet are host-1, host-2 and so on."""

    name: str
    instances: tuple[Instance, ...]


@dataclass(frozen=True)
class HostGroup:
    """Consecutive hosts with the same number of instances each."""

    name: str
    hosts: int
    instances_per_host: int


@dataclass(frozen=True)
class Topology:
    """Where everything runs."""

    hosts: tuple[Host, ...]
    instances: int
    replicas: int
    devices_per_replica: int  # 0: the replica trains on CPUs
    device_word: str  # "IPU" | "GPU" | "CPU"
    ilds: int | None = None  # IPU-Link domains
    partition_ipus: int | None = None  # IPUs the job may choose from
    groups: tuple[HostGroup, ...] = ()  # if hosts differ: all hosts in order, group by group

    @property
    def devices(self) -> int:
        """Devices in use over all hosts."""
        return self.replicas * self.devices_per_replica

    @property
    def instances_per_host(self) -> int:
        """Instances on each host; with groups, those on a host of the fullest group."""
        if self.groups:
            return max(group.instances_per_host for group in self.groups)
        return self.instances // len(self.hosts)

    @property
    def replicas_per_instance(self) -> int:
        """Replicas of each instance."""
        return self.replicas // self.instances

    def of_each_group(self) -> tuple[Topology, ...]:
        """Return the topology of each group by itself; the whole topology if there are no groups."""
        if not self.groups:
            return (self,)
        ends = tuple(accumulate(group.hosts for group in self.groups))
        return tuple(self._part(end - group.hosts, end) for group, end in zip(self.groups, ends, strict=True))

    def _part(self, first: int, end: int) -> Topology:
        hosts = self.hosts[first:end]
        instances = sum(len(host.instances) for host in hosts)
        replicas = instances * self.replicas_per_instance
        return dataclasses.replace(self, hosts=hosts, instances=instances, replicas=replicas, groups=())


@dataclass(frozen=True)
class LearningRateEffect:
    """The effect of the reduction on a step: `factor` times the gradient of a mean, and the reason."""

    factor: int
    because: str


@dataclass(frozen=True)
class Plan:
    """Everything computed from one cluster and one job."""

    cluster: str
    kind: str
    name: str
    engine: str  # single | ddp | ipu | command: a task's engine, or the user's own script
    topology: Topology
    batch: Batch | None  # None for the user's own command
    learning_rate: float | None  # at the schedule's peak, after scaling
    learning_rate_effect: LearningRateEffect | None
    facts: tuple[tuple[str, str], ...]  # further rows of the arithmetic: quantity, value
    warnings: tuple[Problem, ...]
