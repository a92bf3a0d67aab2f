"""What a plan is made of. Everything here is worked out; what was asked stays in the job."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import accumulate

from trainjob.contract.batch import Batch
from trainjob.contract.errors import Problem, UserError


class Refusal(UserError):  # noqa: N818 (an answer, by the design's own word)
    """What was asked can't run: the rule, both numbers, and the cure.

    Each of `nearest` is one change to the job that cures it; the cure says the same in words.
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
    """One machine and the instances on it. Names that are not known are host-1, host-2 and so on."""

    name: str
    instances: tuple[Instance, ...]


@dataclass(frozen=True)
class HostGroup:
    """Hosts that follow each other and have as many instances each."""

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
    groups: tuple[HostGroup, ...] = ()  # where hosts differ: all of them in order, group by group

    @property
    def devices(self) -> int:
        """Devices in use over all hosts."""
        return self.replicas * self.devices_per_replica

    @property
    def instances_per_host(self) -> int:
        """Instances of one host: all hosts have as many. Of groups, those of a host of the fullest."""
        if self.groups:
            return max(group.instances_per_host for group in self.groups)
        return self.instances // len(self.hosts)

    @property
    def replicas_per_instance(self) -> int:
        """Replicas of one instance: all instances have as many."""
        return self.replicas // self.instances

    def of_each_group(self) -> tuple[Topology, ...]:
        """Return each group's part by itself; of hosts that are all alike, the whole."""
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
    """What the reduction does to the step: `factor` times the gradient of a mean, and why."""

    factor: int
    because: str


@dataclass(frozen=True)
class Plan:
    """Everything worked out of one cluster and one job."""

    cluster: str
    kind: str
    name: str
    engine: str  # single | ddp | ipu | command: a task's engine, or the user's own script
    topology: Topology
    batch: Batch | None  # None for a command of the user's own
    learning_rate: float | None  # of the schedule's peak, scaled where that was asked for
    learning_rate_effect: LearningRateEffect | None
    facts: tuple[tuple[str, str], ...]  # further rows of the arithmetic: what, value
    warnings: tuple[Problem, ...]
