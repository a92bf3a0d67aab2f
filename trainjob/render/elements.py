"""The elements of an array, from --array and --sweep: a list whose item N has the settings in which element N differs.

Each element is planned before anything is submitted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from trainjob.cluster import reading, slurm_text
from trainjob.cluster.common import WrittenText
from trainjob.cluster.faults import InvalidError, JobError
from trainjob.cluster.job import Job
from trainjob.cluster.merging import by_setting, overridden
from trainjob.cluster.strict import BreachError, key
from trainjob.contract.errors import Problem
from trainjob.contract.paths import with_home
from trainjob.contract.settings import rows
from trainjob.planning.build import plan
from trainjob.planning.rules import Refusal
from trainjob.render.request import Request

# All elements share the script, the copy of the project and the check of the data, which these settings decide.
SHARED = tuple(row.name for row in rows().values() if row.facts.shared)


class Variation(Job):
    """One element's own settings, and further words of the user's command."""

    arguments: list[WrittenText] = key([], "Words added to the command.")

    def enforce_rules(self) -> None:
        """Raise BreachError for a setting that all elements share."""
        super().enforce_rules()
        for name in SHARED:
            if name in self.stated:
                raise BreachError(
                    name, "is the same for all elements of an array", "give it outside the sweep, or submit two runs"
                )


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
        raise JobError.of_all(
            [
                Problem(JobError.code, f"{where}: {fault.place}{fault.text}", fault.cure, where=where)
                for fault in refused.faults
            ]
        ) from None


class Elements(NamedTuple):
    """An array: the job that its elements share, their numbers, and how each differs from that job."""

    job: Job
    numbers: tuple[int, ...]
    variations: Mapping[int, Variation]

    def planned(self, request: Request) -> Request:
        """Return the request with its elements. Raises JobError, which names the element that can't run."""
        elements = {number: self._planned(request, number) for number in self.numbers}
        swept = sorted({key for variation in self.variations.values() for key in by_setting(variation.given())})
        return dataclasses.replace(request, elements=elements, swept=tuple(swept))

    def _planned(self, request: Request, number: int) -> Request:
        if number not in self.variations:
            return request
        where = f"{self.job.sweep}, element {number}"
        job = job_of_element(request.job, self.variations[number], where)
        origins = {**request.origins, **dict.fromkeys(by_setting(self.variations[number].given()), where)}
        try:
            planned = plan(request.plan.cluster, request.cluster, job)
        except Refusal as refusal:
            raise JobError(f"{where}: {refusal.text}", refusal.cure) from None
        return dataclasses.replace(request, job=job, origins=origins, plan=planned)


def read(job: Job, folder: Path) -> Elements:
    """Return the elements of the array of `job`; no numbers if `job` is not an array. Raises JobError.

    The path of a sweep is relative to `folder`.
    """
    if job.sweep is None:
        return Elements(job, slurm_text.parse_array(job.array).numbers if job.array else (), {})
    text_of_sweep = reading.text_of(folder / with_home(job.sweep), job.sweep, JobError)
    items = dict(enumerate(reading.items_from_text(text_of_sweep, Variation, job.sweep)))
    text = job.array or slurm_text.ranges(list(items))
    numbers = slurm_text.parse_array(text).numbers
    last = len(items) - 1
    if numbers[-1] > last:
        raise JobError(
            f"--array {text} asks for element {numbers[-1]}, and {job.sweep} has items for elements 0 to {last}",
            f"give --array 0-{last}, or leave it out",
        )
    return Elements(job.changed(array=text), numbers, {number: items[number] for number in numbers})
