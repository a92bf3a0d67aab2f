"""Questions to Slurm: squeue, a second question about jobs that it does not list, and the last answer as fallback."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from trainjob.backends.base import Answer, Liveness, place_of
from trainjob.backends.slurm import queue
from trainjob.backends.slurm.queue import QueuedJob
from trainjob.contract import clock
from trainjob.contract.errors import UserError
from trainjob.contract.paths import ELEMENTS, RunPaths, user_data
from trainjob.machines.access import ThisMachine, machine_at
from trainjob.machines.machine import Machine
from trainjob.machines.side_by_side import side_by_side
from trainjob.machines.slurm import commands
from trainjob.records import job as job_records
from trainjob.records.files import write_atomically
from trainjob.records.submission import ELEMENT, Native, Submission

# Seconds that one question may take, where the cluster file does not say.
QUERY_S = 10.0
# Beyond this scontrol lists all jobs once, instead of one after the other.
_MOST_SINGLE_QUESTIONS = 20
_UNKNOWN_JOB = re.compile(r"Invalid job id|Job [0-9_]+ not found")
# An answer of `scontrol show job` about a job id: its jobs (several for an array, none if it knows none), or why it
# could not be asked.
SecondAnswer = Sequence[QueuedJob] | UserError


class JobOfRun(NamedTuple):
    """A native id, read. `folder` is the run directory, which is where sbatch was called or an element's below it."""

    id: str
    folder: str
    host: str | None
    user: str | None
    after: tuple[str, ...]
    query_timeout_s: float
    slurm_conf: str | None  # what SLURM_CONF was, "" for unset; None: not known, or known to the host alone

    @classmethod
    def of(cls, native: Native) -> JobOfRun:
        """Return what a native id says."""
        element = native.get(ELEMENT)
        job_id = str(native["job_id"]) if element is None else f"{native['job_id']}_{element}"
        folder = native["folder"] if element is None else f"{native['folder']}/{ELEMENTS}/{element}"
        timeout_s = float(native.get("query_timeout_s", QUERY_S))
        where, after = (native["host"], native["user"]), tuple(native.get("after", ()))
        return cls(job_id, folder, *where, after, timeout_s, native.get("slurm_conf"))

    @property
    def place(self) -> tuple[str | None, str | None, str | None]:
        """The host and the user whose Slurm has the job, and which Slurm of that host it is."""
        return self.host, self.user, self.slurm_conf

    @property
    def machine(self) -> Machine:
        """The machine whose Slurm has the job. Of several Slurms on this machine, SLURM_CONF names the one in use."""
        conf = self.slurm_conf
        if self.host is not None or conf is None or conf == os.environ.get("SLURM_CONF", ""):
            return machine_at(self.host, self.user)
        return ThisMachine(["env", f"SLURM_CONF={conf}"] if conf else ["env", "-u", "SLURM_CONF"])

    @property
    def array_id(self) -> str:
        """The job's own number; of an element, that of its array."""
        return self.id.partition("_")[0]

    def among(self, by_folder: Mapping[str, list[QueuedJob]]) -> list[QueuedJob]:
        """Return the jobs of this run; none where only jobs of attempts before it are left, and those have ended."""
        jobs = by_folder.get(self.folder, [])
        is_newer = self.array_id.isdigit() and any(int(one.array_id) >= int(self.array_id) for one in jobs)
        return jobs if is_newer or any(not one.has_ended for one in jobs) else []


def slurm_of(paths: RunPaths, submission: Submission | None) -> tuple[Machine, str]:
    """Return the machine whose Slurm has the run's job, or is to get it, and the run directory there."""
    machine, folder = place_of(paths, submission)
    native = submission.native if submission else None
    return machine if native is None else JobOfRun.of(native).machine, folder


def query_timeout_s(paths: RunPaths) -> float:
    """Return how long one question about a run may take, as its cluster file says."""
    with contextlib.suppress(UserError, OSError, TypeError, ValueError):
        return float(job_records.read(paths.whole.job).request.cluster.file.get("query_timeout_s", QUERY_S))
    return QUERY_S


def ask(natives: Sequence[Native]) -> list[Answer]:
    """Return what Slurm says of each job: squeue once for each machine, all machines side by side."""
    return by_place(natives, _ask_one_place)


def by_place(
    natives: Sequence[Native], ask_one_place: Callable[[Sequence[JobOfRun]], Iterable[tuple[JobOfRun, Answer]]]
) -> list[Answer]:
    """Return the answer about each native id, which `ask_one_place` gives for all of one Slurm; all side by side."""
    jobs = [JobOfRun.of(native) for native in natives]
    places = list(dict.fromkeys(job.place for job in jobs))
    grouped = ([job for job in jobs if job.place == place] for place in places)
    answers = dict(pair for pairs in side_by_side(ask_one_place, grouped) for pair in pairs)
    return [answers[job] for job in jobs]


def _ask_one_place(jobs: Sequence[JobOfRun]) -> Iterable[tuple[JobOfRun, Answer]]:
    machine, timeout_s = jobs[0].machine, max(job.query_timeout_s for job in jobs)
    kept = user_data() / "trainjob" / "squeue" / hashlib.sha256(repr(jobs[0].place).encode()).hexdigest()[:16]
    try:
        text = queue.listing(machine, timeout_s)
        by_folder = _by_folder(queue.jobs_in(text, machine))
    except UserError as error:
        return _as_last_seen(jobs, kept, error)
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, text, 0o600)
    missing = [job.id for job in jobs if not job.among(by_folder)]
    accounted: dict[str, str] = {}
    second: dict[str, SecondAnswer] = {}
    if missing:
        from concurrent.futures import ThreadPoolExecutor  # takes a while to load

        with ThreadPoolExecutor(max_workers=2) as pool:
            in_accounting = pool.submit(queue.accounted_states, machine, missing, timeout_s)
            of_controller = pool.submit(second_answers, machine, missing, timeout_s)
            accounted, second = in_accounting.result(), of_controller.result()
        _confirm_end(machine, timeout_s, [job for job in jobs if job.id in second], second)
    return [(job, _answer(job, job.among(by_folder), accounted.get(job.id), second.get(job.id, ()))) for job in jobs]


def _confirm_end(
    machine: Machine, timeout_s: float, missing: Sequence[JobOfRun], second: dict[str, SecondAnswer]
) -> None:
    """Put into `second` the jobs that continue a run whose own job has ended: only the controller knows of them.

    squeue lists them by their folder. An answer of squeue's may be empty or cut, though, and what it does not list is
    the end of a run only where the controller has no other job of that run either.
    """
    answers = ((job, second[job.id]) for job in missing)
    ended = [job for job, jobs in answers if not isinstance(jobs, UserError) and all(one.has_ended for one in jobs)]
    if not ended:
        return
    try:
        by_folder = _by_folder(shown_jobs(machine, timeout_s))
    except UserError as error:
        second.update(dict.fromkeys((job.id for job in ended), error))
        return
    second.update({job.id: found for job in ended if (found := job.among(by_folder))})


def _by_folder(jobs: Iterable[QueuedJob]) -> dict[str, list[QueuedJob]]:
    by_folder: dict[str, list[QueuedJob]] = {}
    for job in jobs:
        for folder in {job.folder, job.run_folder}:
            by_folder.setdefault(folder, []).append(job)
    return by_folder


def _answer(job: JobOfRun, jobs: Sequence[QueuedJob], accounted: str | None, second: SecondAnswer) -> Answer:
    known = jobs or (() if isinstance(second, UserError) else second)
    if known:
        return queue.answer(known, job.after)
    # Accounting knows how this job ended, but not whether another job continues the run.
    if isinstance(second, UserError):
        return Answer(Liveness.UNKNOWN, note=f"squeue does not list its job {job.id}, and {second}")
    if accounted and queue.is_end(accounted):
        return queue.ended(accounted)
    return Answer(Liveness.GONE, note="Slurm has forgotten its job, and its files do not say how it ended")


def _as_last_seen(jobs: Sequence[JobOfRun], kept: Path, error: UserError) -> Iterable[tuple[JobOfRun, Answer]]:
    """Yield the answer about each job by what squeue listed when it last answered, which the file `kept` has."""
    by_folder, age_s = dict[str, list[QueuedJob]](), 0.0
    with contextlib.suppress(OSError):
        age_s = max(0.0, clock.time() - kept.stat().st_mtime)
        by_folder = _by_folder(queue.parse(kept.read_text(encoding="utf-8", errors="replace")))
    units = (("days", 86400), ("h", 3600), ("min", 60), ("s", 1))
    unit, length_s = next((pair for pair in units if age_s >= 2 * pair[1]), units[-1])
    for job in jobs:
        mine = job.among(by_folder)
        last = queue.answer(mine, job.after) if mine else Answer(Liveness.UNKNOWN, note=str(error))
        if mine and last.liveness is not Liveness.GONE:  # a job that has ended stays so, whoever answers now
            seen = f"as seen {age_s / length_s:.0f} {unit} ago{f', {last.note}' if last.note else ''}"
            last = Answer(Liveness.UNKNOWN, note=f"{seen}; {error}", scheduler=last.scheduler)
        yield job, last


def second_answers(machine: Machine, job_ids: Sequence[str], timeout_s: float) -> dict[str, SecondAnswer]:
    """Return what the controller says of each job that squeue does not list."""
    if len(job_ids) <= _MOST_SINGLE_QUESTIONS:
        answers = side_by_side(lambda job_id: _second_answer(machine, job_id, timeout_s), job_ids, at_once=4)
        return dict(zip(job_ids, answers, strict=True))
    try:
        jobs = shown_jobs(machine, timeout_s)
    except UserError as error:
        return dict.fromkeys(job_ids, error)
    return {job_id: [job for job in jobs if job.is_called(job_id)] for job_id in job_ids}


def _second_answer(machine: Machine, job_id: str, timeout_s: float) -> SecondAnswer:
    try:
        shown = commands.call(machine, ["scontrol", "show", "job", "-o", job_id], timeout_s=timeout_s).text
    except commands.SlurmRefusedError as error:
        return () if _UNKNOWN_JOB.search(error.reply) else error
    except UserError as error:
        return error
    jobs = list(queue.parse_shown(shown))
    return jobs or UserError(f"scontrol on {machine.name} should show job {job_id}, but printed {shown.strip()[:80]!r}")


def shown_jobs(machine: Machine, timeout_s: float) -> list[QueuedJob]:
    """Return all jobs that the controller shows. Raises as commands.call does, and for an answer that is none."""
    shown = commands.call(machine, ["scontrol", "show", "job", "-o"], timeout_s=timeout_s).text
    jobs = list(queue.parse_shown(shown))
    if not jobs and "No jobs in the system" not in shown:
        raise queue.unreadable("scontrol", machine, shown)
    return jobs
