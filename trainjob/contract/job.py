"""job.json: what was asked and what was worked out, with the contract's version."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional

from trainjob.contract.errors import UserError

CONTRACT = 1


class ContractError(UserError):
    """job.json is missing, broken, or of a contract that this code does not speak."""


@dataclass(frozen=True)
class TrainSettings:
    """What a rank of our own runtime needs, worked out: no field is left to a default later."""

    task: str
    task_options: Dict[str, Any]
    entry: str
    data: Optional[str]
    engine: str
    instances: int
    replicas: int
    ipus_per_replica: int
    micro_batch: int
    accumulation: int
    device_iterations: int
    epochs: Optional[int]
    updates: Optional[int]
    remainder: str  # drop | pad: what happens to samples that fill no whole block
    samples: Optional[int]
    optimizer: str
    learning_rate: float
    momentum: float
    weight_decay: float
    schedule: str
    warmup_updates: int
    reduction: str
    precision: str
    eight_bit_io: bool
    bucket_mb: int
    workers: int
    seed: int
    checkpoint_every: int  # updates between two checkpoints; 0: only at the end
    keep_checkpoints: int
    log_every: int  # updates between two lines of metrics.jsonl
    allow_unused_parameters: bool
    loss_is_summed: bool = False  # the task's loss sums over a micro batch's samples: reported per sample
    clip_norm: Optional[float] = None  # of the reduced gradient
    init_from: Optional[str] = None  # safetensors file with the first weights; None: by the seed
    trace: Optional[str] = None  # samples | full | nudged: what is written down of every update; evaluates nothing
    stall_timeout_s: float = 600.0  # a rank whose training has not gone on for so long is named, and all end


@dataclass(frozen=True)
class JobRecord:
    """The whole of job.json. `train` is None for a command of the user's own."""

    name: str
    asked: Dict[str, Any]
    plan: Dict[str, Any]
    train: Optional[TrainSettings]
    command: Optional[List[str]]
    secrets_file: Optional[str] = None
    environment: Dict[str, str] = field(default_factory=dict)
    contract: int = CONTRACT

    def to_json(self) -> str:
        """Return the bytes of job.json as text: the same record gives the same text."""
        return json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def parse(text: str, where: str = "job.json") -> JobRecord:
    """Return the record in `text`. Raises ContractError, naming both contract numbers."""
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise ContractError("%s is not JSON: %s" % (where, error)) from None
    number = fields.get("contract") if isinstance(fields, dict) else None
    if number != CONTRACT:
        raise ContractError(
            "%s speaks contract %s and this trainjob speaks %d: "
            "use the trainjob that wrote it (a run directory carries its own in code/)" % (where, number, CONTRACT)
        )
    return _record(fields, where)


def _record(fields: Dict[str, Any], where: str) -> JobRecord:
    try:
        train = fields.get("train")
        fields["train"] = None if train is None else TrainSettings(**train)
        return JobRecord(**fields)
    except TypeError as error:
        raise ContractError("%s does not have the fields of contract %d: %s" % (where, CONTRACT, error)) from None


def read(path: Path) -> JobRecord:
    """Return the record in the file `path`. Raises ContractError."""
    try:
        return parse(path.read_text(encoding="utf-8", errors="replace"), str(path))
    except FileNotFoundError:
        raise ContractError("%s is not there: is this a run directory?" % path) from None
