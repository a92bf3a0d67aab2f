"""What the job runs: a task and its facts, or a command of the user's own."""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import PurePosixPath

from trainjob.cluster.job import Job
from trainjob.contract.tasks import BUILT_IN, TaskFacts, facts
from trainjob.plan.rules import refuse
from trainjob.plan.words import flag, number

DEFAULT_TASK = "digits-cnn"

TASK_EXISTS = "a task is a built-in one or module:attribute of your own"
COMMAND_DECIDES = "a command trains as it is written: batch, data and engine are its own"
SAMPLES_ARE_KNOWN = "samples is for a data set of your own"

TASK_ONLY = (
    "micro_batch",
    "accumulation",
    "global_batch",
    "device_iterations",
    "epochs",
    "updates",
    "optimizer",
    "learning_rate",
    "scale_learning_rate",
    "base_batch",
    "init_from",
    "schedule",
    "engine",
    "data",
    "samples",
)


def task_facts(job: Job) -> TaskFacts | None:
    """Return the facts of the job's task; None for a command. Raises Broken."""
    if job.command is not None:
        _command_stands_alone(job)
        return None
    task = job.task if job.task is not None else DEFAULT_TASK
    known = facts(task)
    if known is None:
        close = [f"Did you mean {name}?" for name in get_close_matches(task, BUILT_IN, n=1)]
        refuse(TASK_EXISTS, f"task is {task}", otherwise=" ".join([*close, f"Built in: {', '.join(BUILT_IN)}."]))
    return known


def task_stages(job: Job, known: TaskFacts | None) -> tuple[int, ...] | None:
    """Return over how many IPUs the task can split its model, the usual first; None: only the user's code knows."""
    return known.stages if known is not None and _is_built_in(job) else None


def samples(job: Job, known: TaskFacts) -> int | None:
    """Return the training samples of an epoch; None: known when it runs. Raises Broken.

    A built-in task on its own data set knows them. ffnet-toy makes its data, as many as `samples` says.
    """
    if not _is_built_in(job) or job.data not in (None, known.data):
        return job.samples
    if known.data is not None and job.samples not in (None, known.samples):
        found = f"samples is {number(job.samples)} and {known.data} has {number(known.samples or 0)} to train on"
        refuse(SAMPLES_ARE_KNOWN, found, otherwise="Leave --samples out.")
    return job.samples if job.samples is not None else known.samples


def _is_built_in(job: Job) -> bool:
    return job.task is None or job.task in BUILT_IN


def name(job: Job) -> str:
    """Return the run's name: as asked, else the task's, else the command's script or program."""
    if job.name is not None:
        return job.name
    if job.command is None:
        return _plain((job.task or DEFAULT_TASK).rpartition(":")[2])
    scripts = [word for word in job.command if word.endswith((".py", ".sh"))]
    return _plain(PurePosixPath((scripts or job.command)[0]).stem)


def _plain(text: str) -> str:
    """Return a name that a scheduler takes as it is, whatever a file is called."""
    return re.sub(r"[^\w.+-]+", "-", text).strip("-.")[:100] or "job"


def _command_stands_alone(job: Job) -> None:
    given = [setting for setting in TASK_ONLY if getattr(job, setting) is not None]
    if given:
        first = given[0]
        refuse(
            COMMAND_DECIDES,
            f"{flag(first)} {getattr(job, first)} beside the command {job.command[0] if job.command else ''}",
            otherwise="Take it out, or write it behind -- where the command reads it.",
        )
