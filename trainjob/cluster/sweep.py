"""A sweep: a list whose item N holds the settings in which element N of an array differs from the job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainjob.cluster import reading
from trainjob.cluster.errors import JobError
from trainjob.cluster.job import Job
from trainjob.cluster.merging import by_setting, overridden
from trainjob.cluster.strict import BreachError
from trainjob.cluster.validation import InvalidError
from trainjob.contract.errors import Problem
from trainjob.contract.settings import RUN, rows, setting

# All elements share the script, the copy of the project and the check of the data, which these settings decide.
SHARED = tuple(row.name for row in rows().values() if row.facts.shared)


@dataclass(frozen=True)
class Variation(Job):
    """One element's own settings, and further words of the user's command."""

    arguments: list[str] = setting([], "Words added to the command.", group=RUN, form="further-words")

    def enforce_rules(self) -> None:
        """Raise BreachError for a setting that all elements share."""
        super().enforce_rules()
        for key in SHARED:
            if key in self.stated:
                raise BreachError(
                    key, "is the same for all elements of an array", "give it outside the sweep, or submit two runs"
                )


def read(path: Path, shown: str) -> list[Variation]:
    """Return the items of the sweep in `path`, which errors call `shown`. Raises JobError."""
    return reading.items_from_text(reading.text_of(path, shown, JobError), Variation, shown)


def job_of_element(job: Job, variation: Variation, where: str) -> Job:
    """Return the job of one element: `job` overridden by `variation`. Raises JobError, which begins with `where`."""
    own = variation.given()
    words = own.pop("arguments", None)
    if words:
        if job.command is None:
            raise JobError(f"{where}: arguments: follow a command of your own, and the job has a task", "take them out")
        own["command"] = [*job.command, *words]
    try:
        return Job.of(overridden(job.given(), own))
    except InvalidError as refused:
        faults = [Problem(JobError.code, f"{where}: {fault.place}{fault.text}", fault.cure) for fault in refused.faults]
        raise JobError.of_all(faults) from None


def settings(variation: Variation) -> dict[str, Any]:
    """Return the element's own settings by key: learning_rate, set.width, env.NAME, arguments."""
    return by_setting(variation.given())
