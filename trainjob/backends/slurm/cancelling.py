"""Ends the jobs of one run: what its files name first, before anything is asked."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence, Set

from trainjob.backends import vipu_partitions
from trainjob.backends.base import place_of
from trainjob.backends.slurm import asking, queue
from trainjob.backends.slurm.asking import read
from trainjob.backends.slurm.queue import Job
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.machines.machine import Machine
from trainjob.machines.slurm import commands
from trainjob.machines.slurm.commands import ControllerDownError, SlurmRefusedError
from trainjob.records import attempts
from trainjob.records.submission import Native

# Seconds between two tries while the controller does not answer.
_DELAYS_S = (1.0, 2.0, 4.0)
_POLL_S = 1.0
# How long Slurm may take beyond the grace time to end a job: TERM, KillWait, KILL, epilogue.
_END_S = 90.0
_JOB_ID = re.compile(r"[0-9]+(_[0-9]+)?")
# What scancel says of a job that has ended.
_OVER = re.compile(r"Invalid job id|already completing or completed", re.IGNORECASE)


def cancel(paths: RunPaths, native: Native | None, grace_s: float) -> None:
    """Cancel every job of this run, array elements and continuations included, and return when none is left.

    Of an element of an array, that element alone. A V-IPU partition that a job of the run could not remove is removed.
    What is known to be the run's is cancelled before anything is asked.

    Raises UserError when Slurm can't be asked, or takes longer than `grace_s` and a minute and a half.
    """
    machine, folder = place_of(paths)
    timeout_s = asking.query_timeout_s(paths)
    recorded = _recorded(paths, native)
    cancelled = set(recorded)
    for job_id in sorted(recorded):
        # The name beside the number: a Slurm that was reinstalled counts from 1 again. With a name, though, scancel
        # would end all elements of an array that wait, where one is meant.
        name = [] if "_" in job_id else [f"--name={paths.whole.id}"]
        _scancel(machine, [*name, job_id], timeout_s)
    deadline = time.monotonic() + grace_s + _END_S
    while left := _unfinished(machine, folder, recorded, timeout_s, sorted(cancelled), paths):
        # The array's own number means all its elements.
        new = {job.array_id if job.folder == folder else job.name for job in left} - cancelled
        if new:
            _scancel(machine, sorted(new), timeout_s)
            cancelled |= new
        if time.monotonic() > deadline:
            raise UserError(
                f"run {paths.id}: Slurm was told to cancel {', '.join(sorted(cancelled))} and has not ended them yet",
                f"Look again later: trainjob status {paths.id}",
            )
        time.sleep(_POLL_S)
    vipu_partitions.remove(paths)


def _recorded(paths: RunPaths, native: Native | None) -> set[str]:
    """Return the ids that the run's own files give: of the newest submission, and of the job that began last."""
    ids = {attempts.job_id(paths) or "", "" if native is None else read(native).id}
    return {job_id for job_id in ids if _JOB_ID.fullmatch(job_id)}


def _scancel(machine: Machine, words: Sequence[str], timeout_s: float) -> None:
    """Call scancel, again for a while where the controller is away. A job that has ended is no error."""
    for delay_s in (*_DELAYS_S, None):
        try:
            commands.call(machine, ["scancel", *words], timeout_s=timeout_s)
        except SlurmRefusedError as error:
            if not _OVER.search(error.reply):
                raise
        except ControllerDownError:
            if delay_s is None:
                raise
            time.sleep(delay_s)
            continue
        return


def _unfinished(
    machine: Machine, folder: str, recorded: Set[str], timeout_s: float, cancelled: Sequence[str], paths: RunPaths
) -> list[Job]:
    """Return the run's jobs that have not ended. That squeue lists none is confirmed by the controller."""
    unanswered: UserError | None = None
    try:
        jobs = queue.jobs(machine, timeout_s)
    except UserError as error:
        jobs, unanswered = [], error
    ours = [job for job in jobs if folder in (job.folder, job.run_folder) and not job.has_ended]
    if ours or (not recorded and unanswered is None):
        return ours
    second = asking.second_answer(machine, sorted(recorded), timeout_s)
    silent = [job_id for job_id in sorted(recorded) if not second.of(job_id) and not second.has_forgotten(job_id)]
    if silent or not recorded:
        why = unanswered or second.why_unknown(silent[0])
        raise UserError(
            f"run {paths.id}: {_told(cancelled)}, and whether it has ended can't be seen: {why}",
            f"Look again later: trainjob status {paths.id}",
        )
    shown = [job for job_id in recorded for job in second.of(job_id)]
    return [job for job in shown if folder in (job.folder, job.run_folder) and not job.has_ended]


def _told(job_ids: Sequence[str]) -> str:
    return f"Slurm was told to cancel {', '.join(job_ids)}" if job_ids else "no job of it is recorded"
