"""Calls sbatch until Slurm has the job, and never so that it has it twice."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Set
from dataclasses import dataclass

from trainjob.backends.base import NotSubmittedError, UnknownOutcomeError
from trainjob.backends.slurm import asking, queue
from trainjob.backends.slurm.queue import Job
from trainjob.contract.errors import UserError
from trainjob.contract.paths import ELEMENTS, RunPaths
from trainjob.machines.machine import Machine
from trainjob.machines.process import CommandError
from trainjob.machines.slurm import commands
from trainjob.machines.slurm.commands import ControllerDownError, SlurmMissingError, SlurmRefusedError
from trainjob.machines.ssh.failures import SshError

# Seconds between two tries while the controller does not answer.
DELAYS_S = (1.0, 2.0, 4.0, 8.0)
# What sbatch may take: a busy controller answers late, and what it has taken by then must be looked for.
SBATCH_S = 60.0
_JOB_ID = re.compile(r"([0-9]+)(;[\w.-]+)?", re.ASCII)


@dataclass(frozen=True)
class Order:
    """One call of sbatch, and how the job of an earlier try of it is recognised."""

    paths: RunPaths
    machine: Machine
    folder: str  # where sbatch is called
    argv: list[str]
    earlier: Set[str]  # jobs of attempts before this one
    is_first: bool  # this is the run's first attempt, so that a job that has ended may be its own, too
    elements: Set[int] = frozenset()  # of an array; none: the whole run

    @property
    def timeout_s(self) -> float:
        """How long Slurm may take to answer a question."""
        return asking.query_timeout_s(self.paths)


def submitted(order: Order) -> str:
    """Return the id of the job, a new one or that of an earlier try.

    Raises NotSubmittedError when it is certain that nothing was submitted, UnknownOutcomeError when it is not.
    """
    lost: UserError | None = None  # after which the job may be in Slurm, or still arrive there
    problem: UserError | None = None
    for delay_s in (0.0, *DELAYS_S):
        time.sleep(delay_s)
        try:
            job_id = job_of_an_earlier_try(order, asks_twice=lost is not None)
            if job_id is not None:
                return job_id
            if lost is None:
                return _call_sbatch(order)
        except (SlurmRefusedError, SlurmMissingError) as error:
            if lost is None:
                raise NotSubmittedError(error.text, error.cure) from None
        except _StillRunsError as error:
            problem = error
        except (ControllerDownError, SshError) as error:
            problem = error
            may_have_arrived = error.is_lost if isinstance(error, ControllerDownError) else error.reached
            if may_have_arrived and lost is None and not isinstance(error, _QuestionError):
                lost = error
            if isinstance(error, SshError) and not error.reached:
                break
    raise _in_vain(order, problem, lost)


def _in_vain(order: Order, problem: UserError | None, lost: UserError | None) -> UserError:
    """Return the error of an order that was tried in vain, the last time for `problem`."""
    if lost is not None:
        return UnknownOutcomeError(
            f"{lost}. Run {order.paths.id} may have been submitted or not",
            f"`trainjob resume {order.paths.id}` looks for it in Slurm and submits it only if it is not there",
        )
    if isinstance(problem, _StillRunsError):
        return problem
    tries = len(DELAYS_S) + 1
    return NotSubmittedError(
        f"{problem}. It was tried {tries} times, and nothing was submitted", "Submit it again later"
    )


def _call_sbatch(order: Order) -> str:
    name = order.machine.name
    try:
        output = commands.call(order.machine, order.argv, folder=order.folder, timeout_s=SBATCH_S).text
    except SlurmRefusedError as error:
        if _job_ids(error.output):
            message = f"sbatch on {name} printed job id {_job_ids(error.output)[-1]} and failed: {error.reply}"
            raise ControllerDownError(message, is_lost=True) from None
        raise
    except CommandError as error:
        # It was killed, and nobody knows when.
        raise ControllerDownError(str(error), is_lost=True) from None
    ids = _job_ids(output)
    if not ids:
        message = f"sbatch on {name} should print a job id, but printed {output.strip()!r}"
        raise ControllerDownError(message, is_lost=True)
    return ids[-1]


def _job_ids(output: str) -> list[str]:
    # A line of its own, "123", or "123;cluster" where there are several clusters: a number may stand in any message.
    matches = (_JOB_ID.fullmatch(line.strip()) for line in output.splitlines())
    return [match[1] for match in matches if match]


def job_of_an_earlier_try(order: Order, *, asks_twice: bool) -> str | None:
    """Return the id of a job that an earlier try has submitted for this attempt; None if there is none.

    `asks_twice`: that squeue lists none is confirmed by scontrol. Raises _QuestionError where Slurm can't be asked, and
    NotSubmittedError if a job of an earlier attempt still waits or runs.
    """
    try:
        job_id = _among(queue.jobs(order.machine, order.timeout_s), order)
        if job_id is None and asks_twice:
            job_id = _among(asking.shown_jobs(order.machine, order.timeout_s), order)
    except (ControllerDownError, CommandError, SshError) as error:
        if isinstance(error, SshError) and not error.reached:
            raise
        raise _QuestionError(str(error), is_lost=False) from None
    return job_id


class _StillRunsError(NotSubmittedError):
    """A job of an earlier attempt runs. Its script may have just recorded its end, and be about to exit."""


class _QuestionError(ControllerDownError):
    """A question, which changes nothing, was not answered."""


def _among(jobs: Iterable[Job], order: Order) -> str | None:
    folders = {f"{order.folder}/{ELEMENTS}/{number}" for number in order.elements}
    ours = [job for job in jobs if job.folder == order.folder and (not folders or job.run_folder in folders)]
    for job in ours:
        if job.array_id in order.earlier and not job.has_ended and job.state != "COMPLETING":
            kind = _StillRunsError if job.state == "RUNNING" else NotSubmittedError
            raise kind(
                f"job {job.name} of an earlier attempt of run {order.paths.id} is {job.state} in Slurm ({job.reason})",
                f"End it first: trainjob cancel {order.paths.id}",
            )
    new = [job for job in ours if job.array_id not in order.earlier and (order.is_first or not job.has_ended)]
    return max((job.array_id for job in new), key=int, default=None)
