"""The back end for Slurm: sbatch, squeue and scancel, on this machine or on a login node over ssh."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from trainjob.backends import mirror, vipu_partitions
from trainjob.backends.base import Native, Submission, place_of, read_submission
from trainjob.backends.slurm import asking, cancelling, ordering
from trainjob.backends.slurm.asking import read
from trainjob.backends.slurm.ordering import Order
from trainjob.cluster.slurm_text import Array
from trainjob.contract.errors import UserError
from trainjob.contract.paths import ELEMENTS, RunPaths
from trainjob.machines.access import machine_at
from trainjob.machines.slurm import commands
from trainjob.records import attempts, usage
from trainjob.records import job as job_records
from trainjob.records.files import read_word

HAS_SCHEDULER = True
ask, cancel = asking.ask, cancelling.cancel


def refuse_folder(folder: Path) -> None:
    """Raise UserError for a folder in which Slurm would look for a job's output under another name."""
    for sign, why in (
        ("\\", "has a backslash in its path, which Slurm drops"),
        ("%", "has a % in its path, which Slurm expands"),
    ):
        if sign in str(folder):
            raise UserError(f"{folder} {why}", "choose another folder")


def argv(paths: RunPaths, script: str, after: Sequence[RunPaths] = ()) -> list[str]:
    """Return the command that submits a job under the run's name."""
    job_ids = [_newest_job(one) for one in after]
    return _sbatch(paths, script, [f"--dependency=afterok:{':'.join(job_ids)}"] if job_ids else [])


def _sbatch(paths: RunPaths, script: str, options: Sequence[str] = ()) -> list[str]:
    return ["sbatch", "--parsable", f"--job-name={paths.whole.id}", *options, script]


def _newest_job(paths: RunPaths) -> str:
    submission = read_submission(paths)
    if submission is None or submission.native is None:
        raise UserError(
            f"run {paths.id} was never submitted, so nothing can wait for it",
            f"submit it first: trainjob resume {paths.id}",
        )
    # A job that could not be requeued is continued by another one, whose id only the run directory has.
    has_begun = attempts.current(paths) >= submission.attempt
    return (read_word(paths.job_id) if has_begun else None) or read(submission.native).id


def image_digest(paths: RunPaths) -> str | None:  # noqa: ARG001 - the Protocol's signature
    """Return None: images lie on the nodes, which are not known yet."""
    return None


def start(paths: RunPaths, script: str) -> Native:
    """Return the job's id and where it was submitted.

    Nothing is submitted twice: a job of this run that Slurm has already is taken. Raises NotSubmittedError when it is
    certain that nothing was submitted, UserError when that is not certain.
    """
    submission = read_submission(paths)
    words = argv(paths, script) if submission is None or not submission.argv else list(submission.argv)
    machine, folder = place_of(paths)
    is_first = submission is None or submission.attempt == 1
    job_id = ordering.submitted(Order(paths, machine, folder, words, _earlier(submission), is_first))
    return _native(paths, job_id)


def start_elements(paths: RunPaths, elements: Array, script: str) -> dict[int, Native]:
    """Return the native ids of some elements of an array, which begin or wait once more. Raises as `start`."""
    numbers = elements.numbers
    folders = [paths.of_element(number) for number in numbers]
    machine, folder = place_of(paths)
    words = _sbatch(paths, script, [f"--array={elements.text}"])
    earlier = {job_id for one in folders for job_id in _earlier(read_submission(one))}
    job_id = ordering.submitted(
        Order(paths, machine, folder, words, earlier, is_first=False, elements=frozenset(numbers))
    )
    return {number: _native(one, f"{job_id}_{number}") for number, one in zip(numbers, folders, strict=True)}


def look_for(paths: RunPaths) -> Native | None:
    """Return the native id of a job that a submission whose outcome is not known has left; None if there is none.

    Raises UserError if Slurm can't be asked.
    """
    submission = read_submission(paths)
    machine, folder = place_of(paths)
    is_first = submission is None or submission.attempt == 1
    order = Order(paths, machine, folder, [], _earlier(submission), is_first)
    if paths.element is not None:
        whole = folder.removesuffix(f"/{ELEMENTS}/{paths.element}")
        order = dataclasses.replace(order, folder=whole, elements=frozenset([paths.element]))
    job_id = ordering.job_of_an_earlier_try(order, asks_twice=True)
    if job_id is None:
        return None
    return _native(paths, job_id if paths.element is None else f"{job_id}_{paths.element}")


def _native(paths: RunPaths, job_id: str) -> Native:
    _, folder = place_of(paths)
    submission = read_submission(paths)
    remote = submission.remote if submission else None
    where = {"host": remote.host, "user": remote.user} if remote else {"host": None, "user": None}
    after = {"after": list(submission.after)} if submission and submission.after else {}
    return {"job_id": job_id, "folder": folder, **where, **after, "query_timeout_s": asking.query_timeout_s(paths)}


def _earlier(submission: Submission | None) -> set[str]:
    # The id of the whole array for an element: other elements of that array may still run.
    return {read(native).array_id for native in submission.earlier} if submission else set()


def identify(native: Native) -> dict[str, str]:
    """Return the id of the run's job."""
    return {"job_id": read(native).id}


def next_to(
    paths: RunPaths,
    native: Native,  # noqa: ARG001 - its job may have been followed by another one
    rank: int,
    words: Sequence[str],
    *,
    terminal: bool,
) -> list[str]:
    """Return `words` as one more step of the job on the rank's node, beside the ranks and without taking from them."""
    mirror.refresh_usage(paths)
    seen = usage.newest(paths, rank)
    if seen is None:
        raise UserError(f"the node of rank {rank} of run {paths.id} is not known yet", "ask again in a moment")
    group = job_records.read(paths.whole.job).plan.topology.group_of_rank(rank)
    of_group = [] if group is None else [f"--het-group={group}"]
    options = [f"--jobid={_newest_job(paths)}", *of_group, f"--nodelist={seen.host}", *(["--pty"] if terminal else [])]
    return commands.endless(["srun", *options, "--overlap", "--nodes=1", "--ntasks=1", "--mem=0", *words])


def interrupt(native: Native) -> None:
    """Send USR1 to the job script, which passes it on to the ranks."""
    job = read(native)
    commands.call(
        machine_at(job.host, job.user), ["scancel", "--batch", "--signal=USR1", job.id], timeout_s=job.query_timeout_s
    )


def start_soon(native: Native) -> None:
    """Spare a requeued job the two minutes that Slurm holds it back."""
    job = read(native)
    # Its nodes would take the credential of a job that starts within the second of its requeue for the revoked one.
    update = ["scontrol", "update", f"JobId={job.id}", "StartTime=now+5"]
    commands.call(machine_at(job.host, job.user), update, timeout_s=job.query_timeout_s)


def clean_up(paths: RunPaths) -> None:
    """Remove the V-IPU partitions that a job of the run could not remove."""
    vipu_partitions.remove(paths)
