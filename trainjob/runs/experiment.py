"""Runs a variation of a job to its end, as an ordinary local run that the usual commands can look into."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.plan.build import plan
from trainjob.render.rendered import Rendered
from trainjob.render.request import Request
from trainjob.runs import start
from trainjob.runs.status import Status, poll
from trainjob.submit.project import Project, Selection

_POLL_S = 0.02


@dataclass(frozen=True)
class Workbench:
    """Where experiments run: what every variation shares."""

    request: Request
    render: Callable[[Request], Rendered]
    runs_dir: Path
    project: Project
    selection: Selection | None

    def vary(self, **changes: Any) -> Request:
        """Return the job with some settings changed, planned anew. Raises Refusal."""
        job = self.request.job.model_copy(update=changes)
        planned = plan(self.request.plan.cluster, self.request.cluster, job)
        return dataclasses.replace(self.request, job=job, plan=planned)

    def refuse_command(self) -> None:
        """Raise UserError for a job that is a command of the user's own."""
        if self.request.job.command:
            raise UserError(
                "this trains tasks of the runtime, and a command's updates can't be seen from outside: give --task"
            )

    def begin(self, request: Request) -> RunPaths:
        """Return the run of one variation, which has begun."""
        return start.submit(
            start.Handover(
                rendered=self.render(request),
                name=request.plan.name,
                cluster=request.plan.cluster,
                backend="local",
                runs_dir=self.runs_dir,
                project=self.project,
                selection=self.selection,
            ),
            again=True,
        )

    def run(self, request: Request) -> RunPaths:
        """Return the run of one variation after it is complete. Raises UserError when it fails."""
        paths = self.begin(request)
        completed(wait(paths))
        return paths


def wait(paths: RunPaths) -> Status:
    """Return the status of a run that has ended."""
    return poll(paths, lambda now: now.state not in states.ACTIVE, lambda: time.sleep(_POLL_S))


def completed(status: Status) -> None:
    """Raise UserError, with the end of the failing rank's log, unless the run is complete."""
    if status.state == states.COMPLETED:
        return
    tail = "\n  | ".join(status.failure.tail[-12:]) if status.failure else "no rank said why"
    raise UserError(
        f"experiment {status.id} is {status.state}, so there is nothing to compare. Look at it with "
        f"`trainjob logs {status.id}`. Its last lines:\n  | {tail}"
    )
