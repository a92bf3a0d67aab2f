"""The back end for Slurm: on the login node, or on one over ssh."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from trainjob.cluster.array import Array
from trainjob.contract.errors import UserError
from trainjob.contract.paths import TASKS, RunPaths
from trainjob.submit import machines, vipu_partitions
from trainjob.submit.base import Answer, Liveness, Native, NotSubmittedError, Submission, place_of, read_submission
from trainjob.submit.machine import Machine
from trainjob.submit.slurm import accounting, commands, queue
from trainjob.submit.slurm.commands import ControllerDownError, SlurmMissingError, SlurmRefusedError
from trainjob.submit.slurm.queue import Job
from trainjob.submit.ssh.failures import SshError

# Seconds between two tries while the controller does not answer.
DELAYS_S = (1.0, 2.0, 4.0, 8.0)
_POLL_S = 1.0
# How long Slurm may take beyond the grace time to end what it was told to end: TERM, KillWait, KILL, epilogue.
_END_S = 90.0


def argv(paths: RunPaths, script: str, options: Sequence[str] = ()) -> list[str]:
    """Return the command that hands a job over, by the run's name: a lost answer is found again by its folder."""
    return ["sbatch", "--parsable", f"--job-name={paths.whole.id}", *options, script]


def start(paths: RunPaths, script: str) -> Native:
    """Return the job's id and where it was submitted.

    Nothing is submitted twice: a job of this run that Slurm has already is taken. Raises NotSubmittedError when it is
    certain that nothing was submitted, UserError when that is not certain.
    """
    submission = read_submission(paths)
    asked = argv(paths, script) if submission is None or not submission.argv else list(submission.argv)
    machine, folder = place_of(paths)
    job_id = _submitted(_Asked(paths, machine, folder, asked, _earlier(submission), _is_first(submission)))
    return _native(paths, job_id)


def start_tasks(whole: RunPaths, again: Array, script: str) -> dict[int, Native]:
    """Return the native ids of some tasks of an array that now have begun, or wait, once more. Raises as `start`."""
    numbers = again.numbers
    tasks = [whole.of_task(number) for number in numbers]
    submissions = [read_submission(task) for task in tasks]
    machine, folder = place_of(whole)
    asked = argv(whole, script, [f"--array={again.text}"])
    earlier = {job_id for one in submissions for job_id in _earlier(one)}
    job_id = _submitted(_Asked(whole, machine, folder, asked, earlier, is_first=False, tasks=frozenset(numbers)))
    return {number: _native(task, f"{job_id}_{number}") for number, task in zip(numbers, tasks, strict=True)}


@dataclass(frozen=True)
class _Asked:
    """One hand-over: what sbatch is called with, and how an earlier try of it is known."""

    paths: RunPaths
    machine: Machine
    folder: str  # where sbatch is called
    argv: list[str]
    earlier: Set[str]  # jobs of attempts before this one
    is_first: bool  # no attempt was before this one, so that a job that has ended may be this one's, too
    tasks: Set[int] = frozenset()  # of an array; none: the whole run


def _native(paths: RunPaths, job_id: str) -> Native:
    _, folder = place_of(paths)
    submission = read_submission(paths)
    remote = submission.remote if submission else None
    where = {"host": remote.host, "user": remote.user} if remote else {"host": None, "user": None}
    after = {"after": list(submission.after)} if submission and submission.after else {}
    return {"job_id": job_id, "folder": folder, **where, **after}


def _earlier(submission: Submission | None) -> set[str]:
    # Of a task, the number of its array: that one's other tasks may run on.
    return {str(native["job_id"]).partition("_")[0] for native in submission.earlier} if submission else set()


def _is_first(submission: Submission | None) -> bool:
    return submission is None or submission.attempt == 1


def _submitted(asked: _Asked) -> str:
    maybe_there = False
    problem: UserError | None = None
    for delay_s in (0.0, *DELAYS_S):
        time.sleep(delay_s)
        try:
            found = _already(asked)
            maybe_there = False
            return found or _sbatch(asked)
        except (SlurmRefusedError, SlurmMissingError) as error:
            raise NotSubmittedError(str(error)) from None
        except (ControllerDownError, SshError) as error:
            maybe_there = maybe_there or _may_have_arrived(error)
            problem = error
            if isinstance(error, SshError) and not error.reached:
                break
    raise _given_up(asked.paths, problem, maybe_there=maybe_there)


def _may_have_arrived(error: ControllerDownError | SshError) -> bool:
    return error.is_lost if isinstance(error, ControllerDownError) else error.reached


def _given_up(paths: RunPaths, problem: UserError | None, *, maybe_there: bool) -> UserError:
    if maybe_there:
        return UserError(
            f"{problem}. Whether run {paths.id} was submitted is not known: `trainjob resume {paths.id}` looks for it "
            "and submits it only where it is not there"
        )
    return NotSubmittedError(f"{problem}. It was tried {len(DELAYS_S) + 1} times, and nothing was submitted")


def _sbatch(asked: _Asked) -> str:
    said = commands.call(asked.machine, asked.argv, folder=asked.folder).text
    # "123", or "123;cluster" where there are several.
    ids = [line.split(";")[0] for line in said.split() if line.split(";")[0].isdigit()]
    if not ids:
        raise UserError(f"sbatch on {asked.machine.name} was to print a job id, and printed {said.strip()!r}")
    return ids[-1]


def _already(asked: _Asked) -> str | None:
    """Return the id of a job that an earlier try has submitted for this attempt; None where there is none."""
    folders = {f"{asked.folder}/{TASKS}/{number}" for number in asked.tasks}
    found = [
        job for job in queue.jobs(asked.machine) if job.folder == asked.folder and job.array_id not in asked.earlier
    ]
    mine = [job for job in found if not folders or job.run_folder in folders]
    return max((job.array_id for job in mine if asked.is_first or not job.has_ended), key=int, default=None)


def ask(natives: Sequence[Native]) -> list[Answer]:
    """Return what Slurm says of each job: one squeue for all of a cluster's, and sacct for those it has forgotten."""
    places = list(dict.fromkeys((native["host"], native["user"]) for native in natives))
    with ThreadPoolExecutor(max_workers=8) as pool:
        grouped = ([native for native in natives if (native["host"], native["user"]) == place] for place in places)
        answers = dict(pair for pairs in pool.map(_ask_one_place, places, grouped) for pair in pairs)
    return [answers[native["folder"], native["job_id"]] for native in natives]


_Answers = Iterable[tuple[tuple[str, str], Answer]]


def _ask_one_place(place: tuple[str | None, str | None], natives: Sequence[Native]) -> _Answers:
    after = {(native["folder"], native["job_id"]): native.get("after", ()) for native in natives}
    machine = machines.reached(*place)
    try:
        by_folder = _by_folder(queue.jobs(machine))
    except UserError as error:
        return [(key, Answer(Liveness.UNKNOWN, note=str(error))) for key in after]
    forgotten = [job_id for folder, job_id in after if folder not in by_folder]
    known = accounting.states_of(machine, forgotten) if forgotten else {}
    return [(key, _answer(by_folder.get(key[0]), known.get(key[1]), waits)) for key, waits in after.items()]


def _by_folder(jobs: Iterable[Job]) -> dict[str, list[Job]]:
    found: dict[str, list[Job]] = {}
    for job in jobs:
        for folder in {job.folder, job.run_folder}:
            found.setdefault(folder, []).append(job)
    return found


def _answer(jobs: list[Job] | None, accounted: str | None, after: Sequence[str]) -> Answer:
    if jobs:
        return queue.answer(jobs, after)
    if accounted:
        return queue.ended(accounted)
    return Answer(Liveness.GONE, note="Slurm no longer knows its job, and its files do not say how it ended")


def cancel(paths: RunPaths, native: Native | None, grace_s: float) -> None:
    """Cancel every job of this run, array tasks and follow-ups included, and return when none is left.

    Of a task of an array, that task alone. A V-IPU partition of the run's own that a job could not remove is removed.

    Raises UserError when Slurm can't be asked, or takes longer than `grace_s` and a minute and a half.
    """
    machine, folder = place_of(paths)
    known = [] if native is None else [str(native["job_id"])]
    deadline = time.monotonic() + grace_s + _END_S
    told: set[str] = set()
    while left := _at_work(machine, folder):
        # The array's own number means all its tasks.
        new = {job.array_id if job.folder == folder else job.name for job in left} - told
        if new:
            commands.call(machine, ["scancel", *sorted(new | set(known if not told else ()))])
            told |= new
        if time.monotonic() > deadline:
            raise UserError(
                f"run {paths.id}: Slurm was told to cancel jobs {', '.join(sorted(told))}, and still ends them"
            )
        time.sleep(_POLL_S)
    vipu_partitions.remove_own(machine, folder, paths)


def _at_work(machine: Machine, folder: str) -> list[Job]:
    return [job for job in queue.jobs(machine) if folder in (job.folder, job.run_folder) and not job.has_ended]
