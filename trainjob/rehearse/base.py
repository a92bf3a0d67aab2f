"""What every rehearsal takes and gives, whatever the kind of cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainjob.render.rendered import Rendered
from trainjob.render.request import Request
from trainjob.submit.project import Project, Selection

INJECTIONS = ("timeout", "preempt", "node-failure", "rank-death", "cancel")


@dataclass(frozen=True)
class Rehearsal:
    """What to rehearse: the very files a submission would write, and what a rehearsal redirects."""

    request: Request
    rendered: Rendered
    project: Project | None
    selection: Selection | None
    folder: Path  # the run directory, to be made
    redirects: Mapping[str, str]
    inject: str | None  # of INJECTIONS
    say: Callable[[str], None]


@dataclass(frozen=True)
class Verdict:
    """How the rehearsal ended, and whether that is what had to happen."""

    passed: bool
    outcome: str
    expected: str
    state: str
    attempts: int
    update: int | None
    same_bytes: bool  # what ran, beside what was rendered
    seconds: Mapping[str, float]  # each step, in order; from the start to its end
    folder: Path

    def as_json(self) -> dict[str, Any]:
        """Return the verdict for `--json`."""
        return {**vars(self), "seconds": dict(self.seconds), "folder": str(self.folder)}


@dataclass
class Clock:
    """Seconds from the start of the rehearsal at which each step ended."""

    began: float = field(default_factory=time.monotonic)
    steps: dict[str, float] = field(default_factory=dict)

    def done(self, step: str) -> None:
        """Note that `step` has ended, the first time it is said."""
        self.steps.setdefault(step, round(time.monotonic() - self.began, 2))
