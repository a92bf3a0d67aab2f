"""What every back end offers, and what a submission is."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from trainjob.contract.files import read_json, write_json
from trainjob.contract.paths import RunPaths

if TYPE_CHECKING:
    from trainjob.cluster.models import Cluster

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

    def cancel(self, paths: RunPaths, native: Native | None, grace_s: float) -> None:
        """End every process of the run and no other; return when none is left. `native` None: not known."""


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


_FIELDS = tuple(field.name for field in dataclasses.fields(Submission))


def read_submission(paths: RunPaths) -> Submission | None:
    """Return what submission.json says; None for a folder that was never submitted, or where the file is broken."""
    fields = read_json(paths.submission)
    if not isinstance(fields, dict):
        return None
    try:
        # A newer trainjob may have written fields that this one does not know.
        return Submission(**{name: fields[name] for name in _FIELDS if name in fields})
    except TypeError:
        return None


def backend_name(cluster: Cluster) -> str:
    """Return the name of the back end that takes runs for `cluster`."""
    return {"local": "local", "slurm": "slurm", "ipu-pod": "poprun"}[cluster.kind]
