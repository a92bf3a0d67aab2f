"""A sweep: a list whose item N holds what task N of an array has of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, model_validator

from trainjob.cluster import reading
from trainjob.cluster.asked import by_setting, overridden
from trainjob.cluster.common import WrittenText, breach
from trainjob.cluster.errors import JobError
from trainjob.cluster.faults import faults
from trainjob.cluster.job import Job

# One script, one copy of the project and one look at the data serve all tasks: these decide them.
SHARED = (
    *("name", "task", "command", "instances", "replicas", "ipus_per_replica", "hosts", "engine", "data", "init_from"),
    *("time_limit", "max_attempts", "array", "sweep", "compile_first", "compile_only", "poprun"),
)


class Variation(Job):
    """What one task has of its own: settings of a job, and further words of the user's command."""

    arguments: list[WrittenText] = Field([], description="Words that follow those of the command.")

    @model_validator(mode="after")
    def _only_what_tasks_may_differ_in(self) -> Variation:
        for key in SHARED:
            if key in self.model_fields_set:
                raise breach(key, "is one for all tasks of an array: give it outside of the sweep, or submit two runs")
        return self


def read(path: Path, shown: str) -> list[Variation]:
    """Return the items of the sweep in `path`, which errors call `shown`. Raises JobError."""
    return reading.items_from_text(reading.text_of(path, shown), Variation, shown)


def job_of_task(job: Job, variation: Variation, where: str) -> Job:
    """Return the job of one task: `job` overridden by what is its own. Raises JobError, which begins with `where`."""
    own = variation.model_dump(exclude_unset=True)
    words = own.pop("arguments", None)
    if words:
        if job.command is None:
            raise JobError(f"{where}: arguments: follow a command of your own, and the job has a task: take them out")
        own["command"] = [*job.command, *words]
    asked = overridden(job.model_dump(exclude_unset=True), own)
    try:
        return Job.model_validate(asked)
    except ValidationError as refused:
        raise JobError("\n".join(f"{where}: {fault}" for fault in _faults(asked, refused))) from None


def _faults(asked: Mapping[str, Any], refused: ValidationError) -> list[object]:
    return list(faults(Job, asked, refused, lambda _path: None))


def settings(variation: Variation) -> dict[str, Any]:
    """Return what a task has of its own, by key: learning_rate, set.width, env.NAME, arguments."""
    return by_setting(variation.model_dump(exclude_unset=True))
