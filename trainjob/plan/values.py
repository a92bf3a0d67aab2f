"""What a plan is made of. Everything here is worked out; what was asked stays in the job."""

from __future__ import annotations

from dataclasses import dataclass

from trainjob.contract.errors import UserError


class Refusal(UserError):  # noqa: N818 (an answer, by the design's own word)
    """What was asked can't run: the rule, both numbers, and the cure.

    Each of `nearest` is one change to the job that cures it; the cure says the same in words.
    """

    def __init__(self, rule: str, found: str, cure: str, nearest: tuple[dict[str, int], ...] = ()) -> None:
        super().__init__(f"{rule}: {found}. {cure}")
        self.rule = rule
        self.found = found
        self.cure = cure
        self.nearest = nearest


@dataclass(frozen=True)
class Warning:  # noqa: A001 (the design's word; always written values.Warning)
    """Something that runs and is likely not meant. `code` is stable, for machines."""

    code: str
    text: str
    cure: str


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
class Topology:
    """Where everything runs."""

    hosts: tuple[Host, ...]
    instances: int
    replicas: int
    devices_per_replica: int  # 0: the replica trains on CPUs
    device_word: str  # "IPU" | "GPU" | "CPU"
    ilds: int | None = None  # IPU-Link domains
    partition_ipus: int | None = None  # IPUs the job may choose from

    @property
    def devices(self) -> int:
        """Devices in use over all hosts."""
        return self.replicas * self.devices_per_replica

    @property
    def instances_per_host(self) -> int:
        """Instances of one host: all hosts have as many."""
        return self.instances // len(self.hosts)

    @property
    def replicas_per_instance(self) -> int:
        """Replicas of one instance: all instances have as many."""
        return self.replicas // self.instances


@dataclass(frozen=True)
class Batch:
    """The arithmetic of one weight update, one block, one epoch. Counts are samples unless named."""

    micro_batch: int
    accumulation: int
    replicas: int
    device_iterations: int
    samples: int | None  # None: known when it runs
    remainder: str
    epochs: int | None
    updates: int | None

    @property
    def global_batch(self) -> int:
        """Samples of one weight update."""
        return self.micro_batch * self.accumulation * self.replicas

    @property
    def block(self) -> int:
        """Samples that all engines together take at once: device iterations × global batch."""
        return self.global_batch * self.device_iterations

    @property
    def blocks_per_epoch(self) -> int | None:
        """Steps of each instance's loader in an epoch; None while the number of samples is not known."""
        if self.samples is None:
            return None
        padded = self.block - 1 if self.remainder == "pad" else 0
        return (self.samples + padded) // self.block

    @property
    def updates_per_epoch(self) -> int | None:
        """Weight updates in an epoch."""
        return None if self.blocks_per_epoch is None else self.blocks_per_epoch * self.device_iterations

    @property
    def dropped(self) -> int | None:
        """Samples of an epoch that no update sees."""
        if self.samples is None or self.blocks_per_epoch is None:
            return None
        return max(0, self.samples - self.blocks_per_epoch * self.block)

    @property
    def padded(self) -> int | None:
        """Samples of an epoch that are seen a second time to fill the last block."""
        if self.samples is None or self.blocks_per_epoch is None:
            return None
        return max(0, self.blocks_per_epoch * self.block - self.samples)

    @property
    def total_updates(self) -> int | None:
        """Weight updates of the whole run."""
        if self.updates is not None:
            return self.updates
        if self.epochs is None or self.updates_per_epoch is None:
            return None
        return self.epochs * self.updates_per_epoch


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
    warnings: tuple[Warning, ...]
