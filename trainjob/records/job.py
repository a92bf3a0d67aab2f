"""job.json: what was requested and what was worked out, with the contract's version."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional

from trainjob.contract.batch import Batch
from trainjob.contract.errors import UserError, joined
from trainjob.contract.paths import CONTRACT
from trainjob.contract.settings import RuntimeSettings
from trainjob.records import typed
from trainjob.records.files import DamagedError, load_json, parse_json, read_small
from trainjob.records.typed import required


class ContractError(UserError):
    """job.json is missing, damaged, or of a contract that this code does not speak."""

    code = "job-record"


@dataclass(frozen=True)
class ClusterRecord:
    """The cluster file: by which name and from where it was taken, and the keys that it states."""

    name: str
    file: Dict[str, Any]
    source: str = typed.field(key="from", default="")


@dataclass(frozen=True)
class RequestRecord:
    """The request. `job` has the settings as stated; `origins` says of each where it was stated."""

    cluster: ClusterRecord
    job: Dict[str, Any]
    origins: Dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class HostGroup:
    """Consecutive hosts with the same number of instances each."""

    name: str
    hosts: int
    instances_per_host: int


@dataclass(frozen=True)
class Topology:
    """The place of every instance. Hosts are one text of ranges; what is alike is a count.

    Where hosts are not alike, `groups` are all of them in order, and `instances_per_host` is that of the fullest.
    """

    hosts: str
    host_count: int
    instances: int
    instances_per_host: int
    replicas: int
    replicas_per_instance: int
    devices_per_replica: int  # 0: the replica trains on CPUs
    device: str  # IPU, GPU or CPU
    ilds: Optional[int] = None  # IPU-Link domains
    partition_ipus: Optional[int] = None  # IPUs that the job may choose from
    groups: List[HostGroup] = field(default_factory=list)
    first_shared_device: Optional[int] = None  # of a server on hosts of the ranks: their devices come first

    @property
    def devices(self) -> int:
        """The devices in use over all hosts."""
        return self.replicas * self.devices_per_replica

    @property
    def devices_per_instance(self) -> int:
        """The devices of one instance; 0 on CPUs."""
        return self.replicas_per_instance * self.devices_per_replica

    @property
    def ranks(self) -> int:
        """The ranks that print and are watched: the instances, or all that are started by a launcher on each node."""
        return self.instances if self.device == "IPU" else max(self.instances, self.replicas)

    @property
    def instances_of_hosts(self) -> List[int]:
        """The number of instances on each host, in order."""
        if not self.groups:
            return [self.instances_per_host] * self.host_count
        return [group.instances_per_host for group in self.groups for _ in range(group.hosts)]

    def refuse_unknown_rank(self, run_id: str, rank: int) -> None:
        """Raise UserError unless the run has a rank of this number."""
        if not 0 <= rank < self.ranks:
            raise UserError("run %s has no rank %d" % (run_id, rank), "it has ranks 0 to %d" % (self.ranks - 1))

    def first_device(self, rank: int, local_rank: int) -> int:
        """Return the first device of a rank: IPUs are numbered across the partition, GPUs from 0 on every host."""
        number = rank if self.device == "IPU" else local_rank
        return number * self.replicas_per_instance * self.devices_per_replica

    def group_of_rank(self, rank: int) -> Optional[int]:
        """Return the number of the group that a rank is in; None if all hosts are alike."""
        end = 0
        for number, group in enumerate(self.groups):
            end += group.hosts * group.instances_per_host
            if rank < end:
                return number
        return None


@dataclass(frozen=True)
class LearningRateEffect:
    """The effect of the reduction on a step: `factor` times the gradient of a mean, and the reason."""

    factor: int
    because: str


@dataclass(frozen=True)
class PlanWarning:
    """Something that can run but is probably not intended. Codes are stable; texts may change."""

    code: str
    text: str
    cure: str

    def __str__(self) -> str:
        """Return the text and the cure."""
        return joined(self.text, self.cure)


@dataclass(frozen=True)
class Plan:
    """Everything computed from one cluster and one job. `batch` and the effect are None for the user's own command."""

    cluster: str
    kind: str
    name: str
    engine: str  # single, ddp, ipu, …; or command
    topology: Topology
    batch: Optional[Batch] = None
    learning_rate_effect: Optional[LearningRateEffect] = None
    facts: Dict[str, str] = field(default_factory=dict)  # further rows of the arithmetic
    warnings: List[PlanWarning] = field(default_factory=list)
    servers: Dict[str, Topology] = field(default_factory=dict)  # of a job with roles, in the order of their start

    @property
    def devices(self) -> int:
        """The devices of the job, its servers' with them."""
        return self.topology.devices + sum(server.devices for server in self.servers.values())

    @property
    def host_count(self) -> int:
        """The hosts that a scheduler gives the job, its servers' with them."""
        own = [server for server in self.servers.values() if server.first_shared_device is None]
        return self.topology.host_count + sum(server.host_count for server in own)


@dataclass(frozen=True)
class TrainSettings(RuntimeSettings):
    """The settings of our runtime: those it takes as they are, and those that were worked out from the others."""

    task: str = required()
    task_options: Dict[str, Any] = required()
    entry: str = required()
    data: Optional[str] = required()
    engine: str = required()
    instances: int = required()
    replicas: int = required()
    ipus_per_replica: int = required()
    micro_batch: int = required()
    accumulation: int = required()
    device_iterations: int = required()
    epochs: Optional[int] = required()
    updates: Optional[int] = required()
    remainder: str = required()
    samples: Optional[int] = required()
    optimizer: str = required()
    learning_rate: float = required()
    schedule: str = required()
    loss_is_summed: bool = False
    least_instances: Optional[int] = None  # Slurm decides how many there are, up to `instances`
    failure_every_s: Optional[float] = None  # mean time between two failures of the hosts of this run
    limit_margin_s: Optional[float] = None  # between the request to stop and the time limit


@dataclass(frozen=True)
class JobRecord:
    """The whole of job.json. `train` is None for a command of the user's own, which then stands in `command`."""

    name: str
    plan: Plan
    train: Optional[TrainSettings]
    command: Optional[List[str]]
    request: RequestRecord = typed.field(key="asked")
    secrets_file: Optional[str] = None
    environment: Dict[str, str] = field(default_factory=dict)
    library: str = ""  # sha256 of the shell library that the job script was rendered with
    contract: int = CONTRACT

    def to_json(self) -> str:
        """Return the bytes of job.json as text: the same record gives the same text."""
        return json.dumps(typed.to_json(self), indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def parse(text: str, where: str = "job.json") -> JobRecord:
    """Return the record in `text`; fields that this code does not know are ignored. Raises ContractError."""
    try:
        fields = parse_json(text)
    except DamagedError as error:
        raise ContractError("%s %s" % (where, error)) from None
    number = fields.get("contract") if isinstance(fields, dict) else None
    if number != CONTRACT:
        raise ContractError(
            "%s speaks contract %s and this trainjob speaks %d" % (where, number, CONTRACT),
            "use the trainjob that wrote it (a run directory carries its own in code/)",
        )
    try:
        return typed.from_json(JobRecord, fields)
    except DamagedError as error:
        raise ContractError("%s is damaged: %s" % (where, error)) from None


def load_name(path: Path) -> Optional[str]:
    """Return the name of the job; None if there is no file. Raises DamagedError, which names the file."""
    try:
        content = load_json(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except DamagedError as error:
        raise DamagedError("%s: %s" % (path.name, error)) from None
    name = content.get("name") if isinstance(content, dict) else content
    if not isinstance(name, str):
        raise DamagedError("%s: name is %s, expected text" % (path.name, repr(name)[:60]))
    return name


def read_if_it_has(path: Path, text: str) -> Optional[JobRecord]:
    """Return the record if its file contains `text`; None also for a missing or damaged file.

    To look through many runs for those of one task: reading is much cheaper than parsing.
    """
    try:
        content = read_small(path)
        is_searched = json.dumps(text, ensure_ascii=False).encode("utf-8", "replace") in content
        return parse(content.decode("utf-8", "replace")) if is_searched else None
    except (FileNotFoundError, NotADirectoryError, DamagedError, ContractError):
        return None


def read(path: Path) -> JobRecord:
    """Return the record in the file `path`. Raises ContractError."""
    try:
        return parse(read_small(path).decode("utf-8", "replace"), str(path))
    except (FileNotFoundError, NotADirectoryError):
        raise ContractError("%s does not exist" % path, "is this a run directory?") from None
    except DamagedError as error:
        raise ContractError("%s %s" % (path, error)) from None
