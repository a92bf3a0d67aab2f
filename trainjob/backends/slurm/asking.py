"""What Slurm says of runs: squeue, a second question about jobs it does not list, and the last answer as fallback."""

from __future__ import annotations

import contextlib
import hashlib
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from trainjob.backends.base import Answer, Liveness
from trainjob.backends.slurm import queue
from trainjob.backends.slurm.queue import Job
from trainjob.contract.errors import UserError
from trainjob.contract.paths import ELEMENTS, RunPaths, user_data
from trainjob.machines.access import machine_at
from trainjob.machines.machine import Machine
from trainjob.machines.slurm import commands
from trainjob.records import job as job_records
from trainjob.records.files import write_atomically
from trainjob.records.submission import ELEMENT, Native

# Seconds that one question may take, where the cluster file does not say.
QUERY_S = 10.0
# Beyond this scontrol lists all jobs once, instead of one after the other.
_MOST_SINGLE_QUESTIONS = 20
_UNKNOWN_JOB = re.compile(r"Invalid job id|Job [0-9_]+ not found")
_FIELD = re.compile(r"(\w+)=(\S*)")
_FOLDER = re.compile(r" WorkDir=(.*?)(?: \w+=|$)")


class JobOfRun(NamedTuple):
    """A native id, read. `folder` is the run directory, which is where sbatch was called or an element's below it."""

    id: str
    folder: str
    host: str | None
    user: str | None
    after: tuple[str, ...]
    query_timeout_s: float

    @property
    def array_id(self) -> str:
        """The job's own number; of an element, that of its array."""
        return self.id.partition("_")[0]


def read(native: Native) -> JobOfRun:
    """Return what a native id says."""
    element = native.get(ELEMENT)
    job_id = str(native["job_id"]) if element is None else f"{native['job_id']}_{element}"
    folder = native["folder"] if element is None else f"{native['folder']}/{ELEMENTS}/{element}"
    timeout_s = float(native.get("query_timeout_s", QUERY_S))
    return JobOfRun(job_id, folder, native["host"], native["user"], tuple(native.get("after", ())), timeout_s)


def query_timeout_s(paths: RunPaths) -> float:
    """Return how long one question about a run may take, as its cluster file says."""
    with contextlib.suppress(UserError, OSError, TypeError, ValueError):
        return float(job_records.read(paths.whole.job).request.cluster.file.get("query_timeout_s", QUERY_S))
    return QUERY_S


def ask(natives: Sequence[Native]) -> list[Answer]:
    """Return what Slurm says of each job: squeue once for each machine, all machines side by side."""
    jobs = [read(native) for native in natives]
    places = list(dict.fromkeys((job.host, job.user) for job in jobs))
    with ThreadPoolExecutor(max_workers=8) as pool:
        grouped = ([job for job in jobs if (job.host, job.user) == place] for place in places)
        answers = dict(pair for pairs in pool.map(_ask_one_place, places, grouped) for pair in pairs)
    return [answers[job] for job in jobs]


def _ask_one_place(place: tuple[str | None, str | None], jobs: Sequence[JobOfRun]) -> Iterable[tuple[JobOfRun, Answer]]:
    machine, timeout_s = machine_at(*place), max(job.query_timeout_s for job in jobs)
    snapshot = _Snapshot(place)
    try:
        text = queue.listing(machine, timeout_s)
        by_folder = _by_folder(queue.jobs_in(text, machine))
    except UserError as error:
        last = _by_folder(snapshot.jobs())
        return [(job, _as_last_seen(_of_this_run(job, last), job, snapshot.age, error)) for job in jobs]
    snapshot.keep(text)
    missing = [job.id for job in jobs if not _of_this_run(job, by_folder)]
    accounted, second = _ask_again(machine, missing, timeout_s)
    return [(job, _answer(job, _of_this_run(job, by_folder), accounted.get(job.id), second)) for job in jobs]


def _ask_again(machine: Machine, job_ids: Sequence[str], timeout_s: float) -> tuple[dict[str, str], SecondAnswer]:
    """Return what accounting and the controller say of jobs that squeue does not list, asked side by side."""
    if not job_ids:
        return {}, SecondAnswer({})
    with ThreadPoolExecutor(max_workers=2) as pool:
        accounted = pool.submit(queue.accounted_states, machine, job_ids, timeout_s)
        second = pool.submit(second_answer, machine, job_ids, timeout_s)
        return accounted.result(), second.result()


def _by_folder(jobs: Iterable[Job]) -> dict[str, list[Job]]:
    by_folder: dict[str, list[Job]] = {}
    for job in jobs:
        for folder in {job.folder, job.run_folder}:
            by_folder.setdefault(folder, []).append(job)
    return by_folder


def _of_this_run(job: JobOfRun, by_folder: Mapping[str, list[Job]]) -> list[Job]:
    """Return the jobs of a run; none where only jobs of attempts before `job` are left, and those have ended."""
    jobs = by_folder.get(job.folder, [])
    is_newer = job.array_id.isdigit() and any(int(one.array_id) >= int(job.array_id) for one in jobs)
    return jobs if is_newer or any(not one.has_ended for one in jobs) else []


def _answer(job: JobOfRun, jobs: list[Job], accounted: str | None, second: SecondAnswer) -> Answer:
    jobs = jobs or second.of(job.id)
    if jobs:
        return queue.answer(jobs, job.after)
    if accounted and queue.is_end(accounted):
        return queue.ended(accounted)
    if second.has_forgotten(job.id):
        return Answer(Liveness.GONE, note="Slurm has forgotten its job, and its files do not say how it ended")
    return Answer(Liveness.UNKNOWN, note=f"squeue does not list its job {job.id}, and {second.why_unknown(job.id)}")


def _as_last_seen(jobs: list[Job], job: JobOfRun, age_s: float | None, error: UserError) -> Answer:
    if not jobs or age_s is None:
        return Answer(Liveness.UNKNOWN, note=str(error))
    last = queue.answer(jobs, job.after)
    # A job that has ended stays so, whoever answers now.
    if last.liveness is Liveness.GONE:
        return last
    seen = f", {last.note}" if last.note else ""
    note = f"as seen {_words(age_s)} ago{seen}; {error}"
    return Answer(Liveness.UNKNOWN, note=note, scheduler=last.scheduler)


def _words(age_s: float) -> str:
    for unit, length_s in (("days", 86400), ("h", 3600), ("min", 60)):
        if age_s >= 2 * length_s:
            return f"{age_s / length_s:.0f} {unit}"
    return f"{age_s:.0f} s"


class _Snapshot:
    """What squeue listed on a machine when it last answered: a file of the user's, and its age."""

    def __init__(self, place: tuple[str | None, str | None]) -> None:
        name = hashlib.sha256(repr(place).encode()).hexdigest()[:16]
        self._path: Path = user_data() / "trainjob" / "squeue" / name

    @property
    def age(self) -> float | None:
        try:
            return max(0.0, time.time() - self._path.stat().st_mtime)
        except OSError:
            return None

    def keep(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, text, 0o600)

    def jobs(self) -> list[Job]:
        try:
            return list(queue.parse(self._path.read_text(encoding="utf-8", errors="replace")))
        except OSError:
            return []


class SecondAnswer(NamedTuple):
    """What `scontrol show job` says of single jobs: a job, None if it knows none, or why it could not be asked."""

    jobs: Mapping[str, Sequence[Job] | UserError | None]

    def of(self, job_id: str) -> list[Job]:
        """Return the jobs it knows by this id: those of an array, or one."""
        answer = self.jobs.get(job_id)
        return [] if answer is None or isinstance(answer, UserError) else list(answer)

    def has_forgotten(self, job_id: str) -> bool:
        """Return whether it answered that there is no such job."""
        return job_id in self.jobs and self.jobs[job_id] is None

    def why_unknown(self, job_id: str) -> str:
        """Return why it could not be asked."""
        return str(self.jobs.get(job_id) or "scontrol was not asked")


def second_answer(machine: Machine, job_ids: Sequence[str], timeout_s: float) -> SecondAnswer:
    """Return what the controller says of jobs that squeue does not list; an error is part of the answer."""
    if len(job_ids) > _MOST_SINGLE_QUESTIONS:
        return _from_all(machine, job_ids, timeout_s)
    with ThreadPoolExecutor(max_workers=4) as pool:
        answers = pool.map(lambda job_id: _show(machine, job_id, timeout_s), job_ids)
        return SecondAnswer(dict(zip(job_ids, answers, strict=True)))


def _show(machine: Machine, job_id: str, timeout_s: float) -> Sequence[Job] | UserError | None:
    try:
        shown = commands.call(machine, ["scontrol", "show", "job", "-o", job_id], timeout_s=timeout_s).text
    except commands.SlurmRefusedError as error:
        return None if _UNKNOWN_JOB.search(error.reply) else error
    except UserError as error:
        return error
    jobs = list(parse_shown(shown))
    return jobs or UserError(f"scontrol on {machine.name} should show job {job_id}, but printed {shown.strip()[:80]!r}")


def _from_all(machine: Machine, job_ids: Sequence[str], timeout_s: float) -> SecondAnswer:
    try:
        jobs = shown_jobs(machine, timeout_s)
    except UserError as error:
        return SecondAnswer(dict.fromkeys(job_ids, error))
    return SecondAnswer({name: [job for job in jobs if _is_called(job, name)] or None for name in job_ids})


def _is_called(job: Job, name: str) -> bool:
    # Elements of an array that wait are one job, whose index is a range.
    in_range = "_" in name and job.array_id == name.partition("_")[0] and not job.index.isdecimal()
    return name in (job.name, job.array_id) or in_range


def shown_jobs(machine: Machine, timeout_s: float) -> list[Job]:
    """Return all jobs that the controller shows. Raises as commands.call does, and for an answer that is none."""
    shown = commands.call(machine, ["scontrol", "show", "job", "-o"], timeout_s=timeout_s).text
    jobs = list(parse_shown(shown))
    if not jobs and "No jobs in the system" not in shown:
        raise queue.unreadable("scontrol", machine, shown)
    return jobs


def parse_shown(text: str) -> Iterable[Job]:
    """Yield the jobs in the output of `scontrol show job -o`, one a line."""
    for line in text.splitlines():
        # A comment, which comes last, may hold anything.
        words: dict[str, str] = dict(reversed(_FIELD.findall(line)))
        folder = _FOLDER.search(line)
        is_job = words.get("JobId", "").isdigit() and words.get("HetJobOffset", "0") == "0"
        if is_job and words.get("JobState", "").isupper() and folder:
            yield Job(
                id=words["JobId"],
                array_id=words.get("ArrayJobId") or words["JobId"],
                index=words.get("ArrayTaskId", "N/A"),
                state=words["JobState"],
                reason=words.get("Reason", "None"),
                start=words.get("StartTime", "N/A").replace("Unknown", "N/A"),
                elapsed=words.get("RunTime", ""),
                time_limit=words.get("TimeLimit", ""),
                time_left="",
                nodes=words.get("NodeList", "").replace("(null)", ""),
                folder=folder[1],
            )
