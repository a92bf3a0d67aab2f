"""The elements of an array, from --array and --sweep. Each is planned before anything is submitted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from trainjob.cluster import array, sweep
from trainjob.cluster.errors import JobError
from trainjob.cluster.job import Job
from trainjob.cluster.sweep import Variation
from trainjob.planning.build import plan
from trainjob.planning.rules import Refusal
from trainjob.render.request import Request


class Elements(NamedTuple):
    """An array: the job that its elements share, their numbers, and how each differs from that job."""

    job: Job
    numbers: tuple[int, ...]
    variations: Mapping[int, Variation]

    def planned(self, request: Request) -> Request:
        """Return the request with its elements. Raises JobError, which names the element that can't run."""
        elements = {number: self._planned(request, number) for number in self.numbers}
        swept = sorted({key for variation in self.variations.values() for key in sweep.settings(variation)})
        return dataclasses.replace(request, elements=elements, swept=tuple(swept))

    def _planned(self, request: Request, number: int) -> Request:
        if number not in self.variations:
            return request
        where = f"{self.job.sweep}, element {number}"
        job = sweep.job_of_element(request.job, self.variations[number], where)
        origins = {**request.origins, **dict.fromkeys(sweep.settings(self.variations[number]), where)}
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
        return Elements(job, array.parse(job.array).numbers if job.array else (), {})
    items = dict(enumerate(sweep.read(folder / Path(job.sweep).expanduser(), job.sweep)))
    text = job.array or array.ranges(list(items))
    numbers = array.parse(text).numbers
    last = len(items) - 1
    if numbers[-1] > last:
        raise JobError(
            f"--array {text} asks for element {numbers[-1]}, and {job.sweep} has items for elements 0 to {last}",
            f"give --array 0-{last}, or leave it out",
        )
    return Elements(job.changed(array=text), numbers, {number: items[number] for number in numbers})
