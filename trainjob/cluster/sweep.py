"""A sweep: a list whose item N holds what element N of an array has of its own."""

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
from trainjob.contract.setting_row import RUN, setting
from trainjob.contract.settings import rows

# One script, one copy of the project and one check of the data serve all elements: these settings decide them.
SHARED = tuple(row.name for row in rows().values() if row.facts.shared)


@dataclass(frozen=True)
class Variation(Job):
    """What one element has of its own: settings of a job, and further words of the user's command."""

    arguments: list[str] = setting([], "Words added to the command.", group=RUN, form="further-words")

    def enforce_rules(self) -> None:
        """Raise BreachError for a setting that is the same for all elements."""
        super().enforce_rules()
        for key in SHARED:
            if key in self.stated:
                raise BreachError(
                    key, "is the same for all elements of an array", "give it outside the sweep, or submit two runs"
                )


def read(path: Path, shown: str) -> list[Variation]:
    """Return the items of the sweep in `path`, which errors call `shown`. Raises JobError."""
    return reading.items_from_text(reading.text_of(path, shown), Variation, shown)


def job_of_element(job: Job, variation: Variation, where: str) -> Job:
    """Return `job` with the settings of one element. Raises JobError, which begins with `where`."""
    own = variation.given()
    words = own.pop("arguments", None)
    if words:
        if job.command is None:
            raise JobError(f"{where}: arguments: follow a command of your own, and the job has a task", "take them out")
        own["command"] = [*job.command, *words]
    options = overridden(job.given(), own)
    try:
        return Job.of(options)
    except InvalidError as refused:
        faults = [Problem(JobError.code, f"{where}: {fault.place}{fault.text}", fault.cure) for fault in refused.faults]
        raise JobError.of_all(faults) from None


def settings(variation: Variation) -> dict[str, Any]:
    """Return the settings of an element, by key: learning_rate, set.width, env.NAME, arguments."""
    return by_setting(variation.given())
