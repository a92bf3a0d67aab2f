"""The run directory: the only contract between who submits and what runs, and its file names."""

from __future__ import annotations

from pathlib import Path
from typing import Optional, Union

# Below a run directory: one folder a task of an array, each a run directory of its own.
TASKS = "tasks"


class RunPaths:
    """Every file of one run directory, by name. Knows names only; touches nothing."""

    def __init__(self, folder: Union[str, Path]) -> None:
        self.folder = Path(folder)
        self.job = self.folder / "job.json"
        self.job_script = self.folder / "job.sh"
        self.batch_script = self.folder / "job.sbatch"
        self.submission = self.folder / "submission.json"
        self.code = self.folder / "code"
        self.project = self.code / "project"
        self.attempt = self.folder / "attempt"
        self.state = self.folder / "state"
        self.exit_code = self.folder / "exit_code"
        self.progress = self.folder / "progress.json"
        self.failure = self.folder / "failure.json"
        self.metrics = self.folder / "metrics.jsonl"
        self.requeue = self.folder / "requeue"
        self.stop = self.folder / "stop"
        self.token = self.folder / ".token"
        self.terminated = self.folder / ".terminated"  # ranks were told to end, which the job script may not have seen
        self.job_id = self.folder / "job_id"  # the scheduler's, of the job that runs or comes next
        self.logs = self.folder / "logs"
        self.scheduler_log = self.logs / "scheduler.out"
        self.checkpoints = self.folder / "checkpoints"

    @property
    def id(self) -> str:
        """The run id: the folder's name; of a task of an array RUN:N."""
        if self.task is not None:
            return "%s:%d" % (self.whole.id, self.task)
        return self.folder.resolve().name

    @property
    def task(self) -> Optional[int]:
        """The number of the task whose run directory this is; None where it is a whole run's."""
        name = self.folder.name
        return int(name) if self.folder.parent.name == TASKS and name.isdecimal() and name.isascii() else None

    @property
    def whole(self) -> "RunPaths":
        """The run that a task belongs to."""
        return self if self.task is None else RunPaths(self.folder.parent.parent)

    def of_task(self, number: int) -> "RunPaths":
        """Return the run directory of task `number` of an array."""
        return RunPaths(self.folder / TASKS / str(number))

    def rank_log(self, rank: int) -> Path:
        """Return where rank `rank` writes all it prints."""
        return self.logs / ("rank-%04d.log" % rank)

    def checkpoint(self, update: int) -> Path:
        """Return the folder of the checkpoint taken after weight update `update`."""
        return self.checkpoints / ("update-%08d" % update)
