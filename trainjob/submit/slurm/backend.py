"""The back end for Slurm: on the login node, or on one over ssh."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.submit import machines
from trainjob.submit.base import Answer, Liveness, Native, NotSubmittedError, place_of, read_submission
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


def argv(paths: RunPaths, script: str) -> list[str]:
    """Return the command that hands a job over. Its name is the run id, by which a lost answer is found again."""
    return ["sbatch", "--parsable", f"--job-name={paths.id}", script]


def start(paths: RunPaths, script: str) -> Native:
    """Return the job's id and where it was submitted.

    Nothing is submitted twice: a job of this run that Slurm has already is taken. Raises NotSubmittedError when it is
    certain that nothing was submitted, UserError when that is not certain.
    """
    machine, folder = place_of(paths)
    job_id = _submitted(machine, paths, folder, script)
    submission = read_submission(paths)
    remote = submission.remote if submission else None
    where = {"host": remote.host, "user": remote.user} if remote else {"host": None, "user": None}
    return {"job_id": job_id, "folder": folder, **where}


def _submitted(machine: Machine, paths: RunPaths, folder: str, script: str) -> str:
    maybe_there = False
    problem: UserError | None = None
    for delay_s in (0.0, *DELAYS_S):
        time.sleep(delay_s)
        try:
            found = _already(machine, paths, folder)
            maybe_there = False
            return found or _sbatch(machine, paths, folder, script)
        except (SlurmRefusedError, SlurmMissingError) as error:
            raise NotSubmittedError(str(error)) from None
        except (ControllerDownError, SshError) as error:
            maybe_there = maybe_there or _may_have_arrived(error)
            problem = error
            if isinstance(error, SshError) and not error.reached:
                break
    raise _given_up(paths, problem, maybe_there=maybe_there)


def _may_have_arrived(error: ControllerDownError | SshError) -> bool:
    return error.is_lost if isinstance(error, ControllerDownError) else error.reached


def _given_up(paths: RunPaths, problem: UserError | None, *, maybe_there: bool) -> UserError:
    if maybe_there:
        return UserError(
            f"{problem}. Whether run {paths.id} was submitted is not known: `trainjob resume {paths.id}` looks for it "
            "and submits it only where it is not there"
        )
    return NotSubmittedError(f"{problem}. It was tried {len(DELAYS_S) + 1} times, and nothing was submitted")


def _sbatch(machine: Machine, paths: RunPaths, folder: str, script: str) -> str:
    said = commands.call(machine, argv(paths, script), folder=folder).text
    # "123", or "123;cluster" where there are several.
    ids = [line.split(";")[0] for line in said.split() if line.split(";")[0].isdigit()]
    if not ids:
        raise UserError(f"sbatch on {machine.name} was to print a job id, and printed {said.strip()!r}")
    return ids[-1]


def _already(machine: Machine, paths: RunPaths, folder: str) -> str | None:
    """Return the id of a job that an earlier try has submitted for this attempt; None where there is none."""
    submission = read_submission(paths)
    earlier = {str(native["job_id"]) for native in submission.earlier} if submission else set()
    is_first = submission is None or submission.attempt == 1
    found = [job for job in queue.jobs(machine) if job.folder == folder and job.array_id not in earlier]
    mine = [job.array_id for job in found if is_first or not job.has_ended]
    return max(mine, key=int, default=None)


def ask(natives: Sequence[Native]) -> list[Answer]:
    """Return what Slurm says of each job: one squeue for all of a cluster's, and sacct for those it has forgotten."""
    places = list(dict.fromkeys((native["host"], native["user"]) for native in natives))
    with ThreadPoolExecutor(max_workers=8) as pool:
        grouped = ([native for native in natives if (native["host"], native["user"]) == place] for place in places)
        answers = dict(pair for pairs in pool.map(_ask_one_place, places, grouped) for pair in pairs)
    return [answers[native["folder"], native["job_id"]] for native in natives]


_Answers = Iterable[tuple[tuple[str, str], Answer]]


def _ask_one_place(place: tuple[str | None, str | None], natives: Sequence[Native]) -> _Answers:
    keys = [(native["folder"], native["job_id"]) for native in natives]
    machine = machines.reached(*place)
    try:
        by_folder = _by_folder(queue.jobs(machine))
    except UserError as error:
        return [(key, Answer(Liveness.UNKNOWN, note=str(error))) for key in keys]
    forgotten = [job_id for folder, job_id in keys if folder not in by_folder]
    known = accounting.states_of(machine, forgotten) if forgotten else {}
    return [((folder, job_id), _answer(by_folder.get(folder), known.get(job_id))) for folder, job_id in keys]


def _by_folder(jobs: Iterable[Job]) -> dict[str, list[Job]]:
    found: dict[str, list[Job]] = {}
    for job in jobs:
        found.setdefault(job.folder, []).append(job)
    return found


def _answer(jobs: list[Job] | None, accounted: str | None) -> Answer:
    if jobs:
        return queue.answer(jobs)
    if accounted:
        return queue.ended(accounted)
    return Answer(Liveness.GONE, note="Slurm no longer knows its job, and its files do not say how it ended")


def cancel(paths: RunPaths, native: Native | None, grace_s: float) -> None:
    """Cancel every job of this run, array tasks and follow-ups included, and return when none is left.

    Raises UserError when Slurm can't be asked, or takes longer than `grace_s` and a minute and a half.
    """
    machine, folder = place_of(paths)
    known = [] if native is None else [str(native["job_id"])]
    deadline = time.monotonic() + grace_s + _END_S
    told: set[str] = set()
    while left := _at_work(machine, folder):
        new = {job.array_id for job in left} - told
        if new:
            commands.call(machine, ["scancel", *sorted(new | set(known if not told else ()))])
            told |= new
        if time.monotonic() > deadline:
            raise UserError(
                f"run {paths.id}: Slurm was told to cancel jobs {', '.join(sorted(told))}, and still ends them"
            )
        time.sleep(_POLL_S)


def _at_work(machine: Machine, folder: str) -> list[Job]:
    return [job for job in queue.jobs(machine) if job.folder == folder and not job.has_ended]
