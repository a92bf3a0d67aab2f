"""Runs of `trainjob verify` on the tasks of wrong_tasks.py."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.local_runs import Here
from tests.support.printed_json import reported
from tests.support.programs import TRAINJOB, ran
from tests.support.runs_at_work import log, train
from trainjob.backends.folder import create
from trainjob.contract.paths import RunPaths
from trainjob.render.request import Request
from trainjob.requests.options import JobOptions
from trainjob.requests.prepared import prepare, rendered
from trainjob.requests.workbench import Workbench
from trainjob.verify.tasks import instances
from trainjob.verify.tasks.instances import InstancesVerdict

_MICRO_BATCH = ("--micro-batch", "4")
_WRONG_TASKS = Path(__file__).with_name("wrong_tasks.py").read_text()


def verify(here: Here, *words: str, code: int = 0, limit_s: float = 300) -> Any:
    """Return what `trainjob verify --json` printed; it has to exit with `code`."""
    command = [TRAINJOB, "verify", "--json", *words]
    ended = ran(command, folder=here.project, environ=here.environ, timeout_s=limit_s, code=code)
    return reported(ended.stdout)


def verify_task(here: Here, task: str, *words: str, code: int = 0, limit_s: float = 300) -> Any:
    """Return the verdict on one of the tasks of wrong_tasks.py, over a whole epoch."""
    here.write("wrong_tasks.py", _WRONG_TASKS)
    size = () if "--micro-batch" in words else _MICRO_BATCH
    updates = () if "--updates" in words else ("--updates", "4")
    asked = ("--task", f"wrong_tasks:{task}", "--samples", "32", *size, *updates, *words)
    return verify(here, *asked, code=code, limit_s=limit_s)


def runs_left(here: Here) -> list[str]:
    """Return the folders of the runs that commands have started for themselves, and kept."""
    experiments = here.folder / "data" / "trainjob" / "experiments"
    # Path.glob would fail where a folder is removed while it looks.
    found = [Path(folder) for folder, _, files in os.walk(experiments) if "job.json" in files]
    return sorted(str(folder) for folder in found if folder.parent.parent == experiments)


@dataclass(frozen=True)
class ForkedRuns(Workbench):
    """Trains the variations of a job with forked ranks: nothing of the command's processes, and seconds sooner."""

    def run(self, request: Request) -> RunPaths:
        self.folder.mkdir(exist_ok=True)
        target = self.folder / f"run-{len(list(self.folder.iterdir()))}"
        paths = create(target, rendered(request), self.prepared.project, self.prepared.selection)
        count = request.plan.topology.instances
        assert train(paths, count) == [0] * count, log(paths)
        return paths


def judge(folder: Path, task: str, updates: int = 4, dtype: str = "float64", **settings: Any) -> InstancesVerdict:
    """Return what `trainjob verify` finds of two instances of a task of wrong_tasks.py, over a whole epoch."""
    project = folder / "project"
    project.mkdir()
    (project / "wrong_tasks.py").write_text(_WRONG_TASKS)
    job = {"task": f"wrong_tasks:{task}", "samples": 32, "micro_batch": 4, "instances": 2, **settings}
    with contextlib.chdir(project):
        prepared = prepare(JobOptions("local", None, job, untracked=True))
        return instances.verify(ForkedRuns(prepared, folder / "runs"), instances=2, updates=updates, dtype=dtype)
