"""The work of a job: a task and its facts, or the user's own command."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from trainjob.cluster.job import Job
from trainjob.contract import settings
from trainjob.contract.errors import nearest
from trainjob.contract.tasks import BUILT_IN, DEFAULT_TASK, TaskFacts, facts
from trainjob.planning.rules import refuse
from trainjob.planning.words import number

TASK_EXISTS = "a task is a built-in one or module:attribute of your own"
COMMAND_DECIDES = "a command of your own decides batch, data and engine itself"
RUNTIME_RECORDS = "only a command's progress is read from what it prints: the runtime records a task's own"
SAMPLES_ARE_KNOWN = "samples is for a data set of your own"

# Beside the user's own command these settings would have no effect.
TASK_ONLY = tuple(row.name for row in settings.rows().values() if row.facts.task_only)


def task_facts(job: Job) -> TaskFacts | None:
    """Return the facts of the job's task; None for a command. Raises Broken."""
    if job.command is not None:
        conflict = next((name for name in TASK_ONLY if getattr(job, name) is not None), None)
        if conflict is not None:
            refuse(
                COMMAND_DECIDES,
                f"{settings.flag(conflict)} {getattr(job, conflict)} beside the command {job.command[0]}",
                otherwise="Leave it out, or put it after -- if the command has such an option.",
            )
        return None
    if job.progress is not None:
        refuse(
            RUNTIME_RECORDS, f"progress is {job.progress}, and the job runs a task", otherwise="Leave --progress out."
        )
    task = job.task if job.task is not None else DEFAULT_TASK
    facts_of_task = facts(task)
    if facts_of_task is None:
        close = [f"Did you mean {name}?" for name in (nearest(task, BUILT_IN),) if name]
        refuse(TASK_EXISTS, f"task is {task}", otherwise=" ".join([*close, f"Built in: {', '.join(BUILT_IN)}."]))
    return facts_of_task


def threads(job: Job, device: str) -> dict[str, str]:
    """Return the variables that limit an instance to one thread, if its micro batches keep no more of them busy.

    It is a fact of the task and not measured: another number of threads would give other bits.
    """
    task = None if job.command else facts(job.task or DEFAULT_TASK)
    if task is None or device != "CPU" or (job.micro_batch or task.micro_batch) > task.one_thread_up_to:
        return {}
    return {"OMP_NUM_THREADS": "1"}


def task_stages(job: Job, task: TaskFacts | None) -> tuple[int, ...] | None:
    """Return how many IPUs the task can split its model over, the usual number first; None for the user's own task."""
    return task.stages if task is not None and (job.task or DEFAULT_TASK) in BUILT_IN else None


def samples(job: Job, task: TaskFacts) -> int | None:
    """Return the training samples of an epoch; None if they are known only when the job runs. Raises Broken.

    A built-in task on its own data set knows them. ffnet-toy generates as many samples as `samples` says.
    """
    if (job.task or DEFAULT_TASK) not in BUILT_IN or job.data not in (None, task.data):
        return job.samples
    if task.data is not None and job.samples not in (None, task.samples):
        values = f"samples is {number(job.samples)} and {task.data} has {number(task.samples or 0)} to train on"
        refuse(SAMPLES_ARE_KNOWN, values, otherwise="Leave --samples out.")
    return job.samples if job.samples is not None else task.samples


def name(job: Job) -> str:
    """Return the run's name: the job's, else the task's, else that of the command's script or program.

    A name that comes from a file becomes one that every scheduler accepts.
    """
    if job.name is not None:
        return job.name
    text = (job.task or DEFAULT_TASK).rpartition(":")[2]
    if job.command is not None:
        scripts = [word for word in job.command if word.endswith((".py", ".sh"))]
        text = PurePosixPath((scripts or job.command)[0]).stem
    return re.sub(r"[^\w.+-]+", "-", text).strip("-.")[:100] or "job"
