"""From --array and --sweep to the tasks of an array, each planned before anything is submitted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from trainjob.cluster import array, sweep
from trainjob.cluster.errors import JobError
from trainjob.cluster.job import Job
from trainjob.cluster.sweep import Variation
from trainjob.plan.build import plan
from trainjob.plan.values import Refusal
from trainjob.render.request import Request


class Tasks(NamedTuple):
    """An array as asked: the job of all its tasks, their numbers, and what each has of its own."""

    job: Job
    numbers: tuple[int, ...]
    own: Mapping[int, Variation]

    def planned(self, request: Request) -> Request:
        """Return the request with its tasks. Raises JobError, which names the task that can't run as asked."""
        tasks = {number: self._planned(request, number) for number in self.numbers}
        swept = sorted({key for variation in self.own.values() for key in sweep.settings(variation)})
        return dataclasses.replace(request, tasks=tasks, swept=tuple(swept))

    def _planned(self, request: Request, number: int) -> Request:
        if number not in self.own:
            return request
        where = f"{self.job.sweep}, task {number}"
        job = sweep.job_of_task(request.job, self.own[number], where)
        origins = {**request.origins, **dict.fromkeys(sweep.settings(self.own[number]), where)}
        try:
            planned = plan(request.plan.cluster, request.cluster, job)
        except Refusal as refusal:
            raise JobError(f"{where}: {refusal}") from None
        return dataclasses.replace(request, job=job, origins=origins, plan=planned)


def read(job: Job, folder: Path) -> Tasks:
    """Return the tasks that `job` asks for, none without an array. Raises JobError.

    A sweep is looked for from `folder` on.
    """
    if job.sweep is None:
        return Tasks(job, array.parse(job.array).numbers if job.array else (), {})
    items = dict(enumerate(sweep.read(folder / Path(job.sweep).expanduser(), job.sweep)))
    asked = job.array or array.ranges(list(items))
    numbers = array.parse(asked).numbers
    _refuse_more_than_there_are(job.sweep, asked, numbers[-1], len(items))
    return Tasks(job.model_copy(update={"array": asked}), numbers, {number: items[number] for number in numbers})


def _refuse_more_than_there_are(name: str, asked: str, last: int, count: int) -> None:
    if last >= count:
        raise JobError(
            f"--array {asked} asks for task {last}, and {name} has items for tasks 0 to {count - 1}: "
            f"take --array 0-{count - 1}, or leave it out"
        )
