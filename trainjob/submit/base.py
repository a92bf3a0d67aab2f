"""What every back end offers, and what a submission is."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from trainjob.cluster.models import Cluster
from trainjob.contract.files import read_json, write_json
from trainjob.contract.paths import RunPaths

Native = dict[str, Any]


class Liveness(Enum):
    """What a back end knows of a run that its files call active."""

    ALIVE = "alive"
    GONE = "gone"
    UNKNOWN = "unknown"


class BackEnd(Protocol):
    """One way to hand a run directory over. Modules fit it; nothing is registered, nothing inherited."""

    def start(self, paths: RunPaths, script: str) -> Native:
        """Return the native id of the run that now has begun or waits."""

    def argv(self, script: str) -> list[str]:
        """Return the command that `start` runs, for the record."""

    def liveness(self, natives: Sequence[Native]) -> list[Liveness]:
        """Return, for each native id, whether anything of it still runs; one question for all."""

    def cancel(self, paths: RunPaths, native: Native, grace_s: float) -> None:
        """End every process of the run and no other; return when none is left."""


@dataclass(frozen=True)
class Submission:
    """submission.json: how the newest attempt was handed over."""

    backend: str
    cluster: str
    native: Native | None  # None: recorded, and not known to have been handed over
    argv: list[str]
    script: str
    submitted_at: str  # ISO 8601, UTC
    attempt: int  # the attempt that this submission starts
    digest: str  # of the job and the project, to know a job submitted twice
    project: Mapping[str, Any]
    image_digest: str | None = None
    cancelled_at: str | None = None

    def write(self, paths: RunPaths) -> None:
        """Write submission.json, atomically."""
        write_json(paths.submission, dataclasses.asdict(self))

    def replace(self, **changes: Any) -> Submission:
        """Return the submission with some fields changed."""
        return dataclasses.replace(self, **changes)


def read_submission(paths: RunPaths) -> Submission | None:
    """Return what submission.json says; None for a folder that was never submitted."""
    fields = read_json(paths.submission)
    return Submission(**fields) if isinstance(fields, dict) else None


def backend_name(cluster: Cluster) -> str:
    """Return the name of the back end that takes runs for `cluster`."""
    return {"local": "local", "slurm": "slurm", "ipu-pod": "poprun"}[cluster.kind]
