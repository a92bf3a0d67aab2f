"""The back end for Slurm, on this machine or on a login node over ssh: submits a run once, and cancels its jobs."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from trainjob.backends import mirror
from trainjob.backends.base import NotSubmittedError, UnknownOutcomeError, place_of
from trainjob.backends.containers import remove_partitions
from trainjob.backends.slurm import asking, queue
from trainjob.backends.slurm.asking import JobOfRun, slurm_of
from trainjob.backends.slurm.queue import QueuedJob
from trainjob.cluster.slurm_text import Array, parse_array
from trainjob.contract import clock, states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import ELEMENTS, RunPaths
from trainjob.machines.machine import Machine
from trainjob.machines.process import CommandError
from trainjob.machines.slurm import commands
from trainjob.machines.slurm.commands import ControllerDownError, SlurmMissingError, SlurmRefusedError
from trainjob.machines.ssh.failures import SshError
from trainjob.records import attempts
from trainjob.records import job as job_records
from trainjob.records import submission as submissions
from trainjob.records.submission import SBATCH_MESSAGES, Native, Submission

HAS_SCHEDULER = True
# Seconds between two tries of sbatch, and of scancel, while the controller does not answer.
SUBMIT_DELAYS_S = (1.0, 2.0, 4.0, 8.0)
CANCEL_DELAYS_S = (1.0, 2.0, 4.0)
# What sbatch may take: a busy controller answers late, and what it has taken by then must be looked for.
SBATCH_S = 60.0
POLL_S = 1.0
# What a rank that has begun may take to be seen on its node.
NODE_KNOWN_S = 10.0
# How long Slurm may take beyond the grace time to end a job: TERM, KillWait, KILL, epilogue.
END_S = 90.0
_AFTER = "--dependency=afterok:"
_DEPENDENCY = re.compile(re.escape(_AFTER) + "[0-9_:]+")
# What scancel says of a job that has ended.
_OVER = re.compile(r"Invalid job id|already completing or completed", re.IGNORECASE)

ask = asking.ask


def refuse_folder(folder: Path) -> None:
    """Raise UserError for a folder in which Slurm would look for a job's output under another name."""
    for sign, why in (
        ("\\", "has a backslash in its path, which Slurm drops"),
        ("%", "has a % in its path, which Slurm expands"),
    ):
        if sign in str(folder):
            raise UserError(f"{folder} {why}", "choose another folder")


def argv(
    paths: RunPaths,
    script: str,
    after: Sequence[RunPaths] = (),
    inside: str | None = None,  # noqa: ARG001 - see BackEnd
) -> list[str]:
    """Return the command that submits a job under the run's name."""
    jobs = [job for one in after for job in _jobs_of(one)]
    options = [f"{_AFTER}{':'.join(jobs)}"] if jobs else []
    return ["sbatch", "--parsable", f"--job-name={paths.whole.id}", *options, script]


def _jobs_of(paths: RunPaths) -> list[str]:
    """Return the jobs whose success means that the run is complete."""
    whole, elements = _newest_job(paths, submissions.read(paths)), paths.elements()
    newest = {one: _newest_job(one, submissions.read(one)) for one in elements}
    if all(job.partition("_")[0] == whole for job in newest.values()):
        return [whole]
    # An element that has not begun has no folder, as a rule.
    text, begun = job_records.read(paths.job).request.job.get("array"), {one.element for one in elements}
    waiting = [number for number in parse_array(text).numbers if number not in begun] if text else []
    left = [job for one, job in newest.items() if attempts.state(one) != states.COMPLETED]
    return [*left, *(f"{whole}_{number}" for number in waiting)]


def _newest_job(paths: RunPaths, submission: Submission | None) -> str:
    if submission is None or submission.native is None:
        raise UserError(
            f"run {paths.id} was never submitted, so nothing can wait for it",
            f"submit it first: trainjob resume {paths.id}",
        )
    # A job that could not be requeued is continued by another one, whose id only the run directory has.
    has_begun = attempts.current(paths) >= submission.attempt
    return (attempts.job_id(paths) if has_begun else None) or JobOfRun.of(submission.native).id


@dataclass(frozen=True)
class Order:
    """One call of sbatch, and how the job of an earlier try of it is recognized."""

    paths: RunPaths
    machine: Machine
    folder: str  # where sbatch is called
    argv: Sequence[str]
    earlier: Set[str]  # jobs of attempts before this one
    is_first: bool  # this is the run's first attempt, so that a job that has ended may be its own, too
    elements: Set[int] = frozenset()  # of an array; none: the whole run

    def job_of_an_earlier_try(self, *, asks_twice: bool) -> str | None:
        """Return the id of a job that an earlier try has submitted for this attempt; None if there is none.

        `asks_twice`: that squeue lists none is confirmed by scontrol. Raises _QuestionError where Slurm can't be asked,
        and NotSubmittedError if a job of an earlier attempt still waits or runs.
        """
        timeout_s = asking.query_timeout_s(self.paths)
        try:
            job_id = self._mine(queue.jobs(self.machine, timeout_s))
            if job_id is None and asks_twice:
                job_id = self._mine(asking.shown_jobs(self.machine, timeout_s))
        except (ControllerDownError, CommandError, SshError) as error:
            if isinstance(error, SshError) and not error.reached:
                raise
            raise _QuestionError(str(error), is_lost=False) from None
        return job_id

    def _mine(self, jobs: Iterable[QueuedJob]) -> str | None:
        folders = {f"{self.folder}/{ELEMENTS}/{number}" for number in self.elements}
        ours = [job for job in jobs if job.folder == self.folder and (not folders or job.run_folder in folders)]
        for job in ours:
            if job.array_id in self.earlier and not job.has_ended and job.state != "COMPLETING":
                kind = _StillRunsError if job.state == "RUNNING" else NotSubmittedError
                text = f"job {job.name} of an earlier attempt of run {self.paths.id} is {job.state} in Slurm"
                raise kind(f"{text} ({job.reason})", f"End it first: trainjob cancel {self.paths.id}")
        new = [job for job in ours if job.array_id not in self.earlier and (self.is_first or not job.has_ended)]
        return max((job.array_id for job in new), key=int, default=None)

    def submitted(self) -> tuple[str, str]:
        """Return the id of the job, a new one or that of an earlier try, and what the site says of a new one.

        Raises NotSubmittedError when it is certain that nothing was submitted, UnknownOutcomeError when it is not.
        """
        lost: UserError | None = None  # after which the job may be in Slurm, or still arrive there
        problem: UserError | None = None
        for delay_s in (0.0, *SUBMIT_DELAYS_S):
            clock.sleep(delay_s)
            try:
                # Not lightly believed of a resume: Slurm may just have taken the job before this one back.
                job_id = self.job_of_an_earlier_try(asks_twice=lost is not None or bool(self.earlier))
                if job_id is not None:
                    return job_id, ""
                if lost is None:
                    return self._call_sbatch()
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
        if lost is not None:
            raise UnknownOutcomeError(
                f"{lost}. Run {self.paths.id} may have been submitted or not",
                f"`trainjob resume {self.paths.id}` looks for it in Slurm and submits it only if it is not there",
            )
        if isinstance(problem, _StillRunsError):
            raise problem
        tries = f"It was tried {len(SUBMIT_DELAYS_S) + 1} times, and nothing was submitted"
        later = NotSubmittedError(f"{problem}. {tries}", "Submit it again later")
        later.is_out_of_reach = problem is not None and problem.is_out_of_reach
        raise later

    def _call_sbatch(self) -> tuple[str, str]:
        name = self.machine.name
        try:
            ended = commands.call(self.machine, self.argv, folder=self.folder, timeout_s=SBATCH_S)
        except SlurmRefusedError as error:
            job_id = queue.submitted_id(error.output)
            if job_id is not None:
                message = f"sbatch on {name} printed job id {job_id} and failed: {error.reply}"
                raise ControllerDownError(message, is_lost=True) from None
            raise
        except CommandError as error:
            # It was killed at an unknown time.
            raise ControllerDownError(str(error), is_lost=True) from None
        job_id = queue.submitted_id(ended.text)
        if job_id is None:
            message = f"sbatch on {name} should print a job id, but printed {ended.text.strip()!r}"
            raise ControllerDownError(message, is_lost=True)
        return job_id, ended.stderr.strip()


class _StillRunsError(NotSubmittedError):
    """A job of an earlier attempt runs. Its script may have just recorded its end, and be about to exit."""


class _QuestionError(ControllerDownError):
    """A question, which changes nothing, was not answered."""


def start(paths: RunPaths, submission: Submission) -> Native:
    """Return the job's id and where it was submitted.

    Nothing is submitted twice: a job of this run that Slurm has already is taken. Raises NotSubmittedError when it is
    certain that nothing was submitted, UserError when that is not certain.
    """
    *words, script = argv(paths, submission.script)
    # What was recorded tells for which jobs it waits; anything else in it would be executed unseen.
    words += [word for word in submission.argv if _DEPENDENCY.fullmatch(word)]
    place, earlier = slurm_of(paths, submission), _earlier(paths, submission)
    order = Order(paths, *place, [*words, script], earlier, is_first=submission.attempt == 1)
    job_id, messages = order.submitted()
    return {**native(paths, submission, job_id), **({SBATCH_MESSAGES: messages} if messages else {})}


def start_elements(
    paths: RunPaths, submission: Submission | None, elements: Array, recorded: Mapping[int, Submission]
) -> dict[int, Native]:
    """Return the native ids of some elements of an array, which begin or wait once more. Raises as `start`."""
    numbers = elements.numbers
    option = [f"--array={elements.text}"]
    job_id = start_again(paths, submission, recorded, option, elements=frozenset(numbers))
    return {number: native(paths.of_element(number), recorded[number], f"{job_id}_{number}") for number in numbers}


def start_again(
    paths: RunPaths,
    submission: Submission | None,
    recorded: Mapping[int, Submission],
    options: Sequence[str] = (),
    *,
    arguments: Sequence[str] = (),
    earlier: Set[str] = frozenset(),
    elements: Set[int] = frozenset(),
) -> str:
    """Return the id of the job in which the `recorded` elements begin once more: those of an array, or a whole job.

    sbatch gets these `options`, and the script these `arguments`. `earlier` are jobs of the run beside theirs.
    """
    *sbatch, script = argv(paths, next(iter(recorded.values())).script)
    theirs = {job_id for number, one in recorded.items() for job_id in _earlier(paths.of_element(number), one)}
    words, place = [*sbatch, *options, script, *arguments], slurm_of(paths, submission)
    return Order(paths, *place, words, theirs | earlier, is_first=False, elements=elements).submitted()[0]


def look_for(paths: RunPaths, submission: Submission) -> Native | None:
    """Return the native id of a job that a submission whose outcome is not known has left; None if there is none.

    Raises UserError if Slurm can't be asked, unless the job has begun and stands in the run directory.
    """
    begun = attempts.job_id(paths)
    if begun is not None and begun.partition("_")[0] not in _earlier(paths, submission):
        return native(paths, submission, begun)
    number = paths.element
    machine, folder = slurm_of(paths, submission)
    whole = folder if number is None else folder.removesuffix(f"/{ELEMENTS}/{number}")
    elements = frozenset[int]() if number is None else frozenset([number])
    order = Order(paths, machine, whole, [], _earlier(paths, submission), submission.attempt == 1, elements)
    job_id = order.job_of_an_earlier_try(asks_twice=True)
    if job_id is None:
        return None
    return native(paths, submission, job_id if number is None else f"{job_id}_{number}")


def native(paths: RunPaths, submission: Submission, job_id: str) -> Native:
    """Return the native id of a run whose job is `job_id`."""
    remote = submission.remote
    where = {"host": remote.host, "user": remote.user} if remote else {"host": None, "user": None}
    after = {"after": list(submission.after)} if submission.after else {}
    # Of Slurms side by side on this machine, the one that was asked. Elsewhere, what users' shells set decides.
    conf = {} if remote else {"slurm_conf": os.environ.get("SLURM_CONF", "")}
    asked = {"query_timeout_s": asking.query_timeout_s(paths)}
    return {"job_id": job_id, "folder": place_of(paths, submission)[1], **where, **after, **conf, **asked}


def _earlier(paths: RunPaths, submission: Submission) -> set[str]:
    """Return the jobs of attempts before this submission's."""
    # The id of the whole array for an element: other elements of that array may still run.
    earlier = {JobOfRun.of(native).array_id for native in submission.earlier}
    # Of a follow-up job, which no command has submitted, the files alone know.
    begun = attempts.job_id(paths)
    if begun is not None and attempts.current(paths) < submission.attempt:
        earlier.add(begun.partition("_")[0])
    return earlier


def identify(native: Native) -> dict[str, str]:
    """Return the id of the run's job."""
    return {"job_id": JobOfRun.of(native).id}


def next_to(
    paths: RunPaths,
    submission: Submission,
    rank: int,
    words: Sequence[str],
    *,
    terminal: bool,
) -> list[str]:
    """Return `words` as one more step of the job on the rank's node, beside the ranks and without taking from them."""
    deadline = clock.monotonic() + NODE_KNOWN_S
    from trainjob.records import usage  # few commands signal ranks

    mirror.refresh_usage(paths, submission)
    while (seen := usage.newest(paths, rank)) is None:
        if clock.monotonic() > deadline:
            raise UserError(f"the node of rank {rank} of run {paths.id} is not known yet", "ask again in a moment")
        clock.sleep(POLL_S)
        mirror.refresh_usage(paths, submission)
    group = job_records.read(paths.whole.job).plan.topology.group_of_rank(rank)
    of_group = [] if group is None else [f"--het-group={group}"]
    options = [
        f"--jobid={_newest_job(paths, submission)}",
        *of_group,
        f"--nodelist={seen.host}",
        *(["--pty"] if terminal else []),
    ]
    return commands.endless(["srun", *options, "--overlap", "--nodes=1", "--ntasks=1", "--mem=0", *words])


def interrupt(native: Native) -> None:
    """Send USR1 to the job script, which passes it on to the ranks."""
    job = JobOfRun.of(native)
    words = ["scancel", "--batch", "--signal=USR1", job.id]
    commands.call(job.machine, words, timeout_s=job.query_timeout_s)


def signal_ranks(paths: RunPaths, native: Native, signal: str) -> None:
    """Send a signal to the steps of the run's newest job; the job script sees how they end."""
    job = JobOfRun.of(native)
    newest = attempts.job_id(paths) or job.id
    commands.call(job.machine, ["scancel", f"--signal={signal}", newest], timeout_s=job.query_timeout_s)


def start_soon(native: Native) -> None:
    """Spare a requeued job the two minutes that Slurm holds it back."""
    job = JobOfRun.of(native)
    # Its nodes would take the credential of a job that starts within the second of its requeue for the revoked one.
    update = ["scontrol", "update", f"JobId={job.id}", "StartTime=now+5"]
    commands.call(job.machine, update, timeout_s=job.query_timeout_s)


def cancel(paths: RunPaths, submission: Submission, grace_s: float) -> None:
    """Cancel every job of this run, array elements and continuations included, and return when none is left.

    Of an element of an array, that element alone. A V-IPU partition that a job of the run could not remove is removed.
    What its own files name as the run's is cancelled before anything is asked.

    Raises UserError when Slurm can't be asked, or takes longer than `grace_s` and a minute and a half.
    """
    (machine, folder), native = slurm_of(paths, submission), submission.native
    timeout_s = asking.query_timeout_s(paths)
    # Of the newest submission, and of the job that began last.
    named = {attempts.job_id(paths) or "", "" if native is None else JobOfRun.of(native).id}
    recorded = {job_id for job_id in named if re.fullmatch(r"[0-9]+(_[0-9]+)?", job_id)}
    for job_id in sorted(recorded):
        # The name beside the number: a Slurm that was reinstalled counts from 1 again. With a name, though, scancel
        # would end all elements of an array that wait, where one is meant.
        name = [] if "_" in job_id else [f"--name={paths.whole.id}"]
        scancel(machine, [*name, job_id], timeout_s)
    cancelled = set[str]()
    deadline = clock.monotonic() + grace_s + END_S
    while left := _unfinished(paths, machine, folder, recorded | cancelled, timeout_s):
        # The array's own number means all its elements. A site may have renamed the job: what still runs in the run's
        # folder is cancelled once more, without a name.
        remaining = {job.array_id if job.folder == folder else job.name for job in left if job.state != "COMPLETING"}
        if new := remaining - cancelled:
            scancel(machine, sorted(new), timeout_s)
            cancelled |= new
        if clock.monotonic() > deadline:
            every = ", ".join(sorted(recorded | cancelled))
            raise UserError(
                f"run {paths.id}: Slurm was asked to cancel {every}, and has not ended them yet",
                f"Look again later: trainjob status {paths.id}",
            )
        clock.sleep(POLL_S)
    remove_partitions(paths, submission)


def scancel(machine: Machine, words: Sequence[str], timeout_s: float) -> None:
    """Call scancel, again for a while where the controller is away. A job that has ended is no error."""
    for delay_s in (*CANCEL_DELAYS_S, None):
        try:
            commands.call(machine, ["scancel", *words], timeout_s=timeout_s)
        except SlurmRefusedError as error:
            if not _OVER.search(error.reply):
                raise
        except ControllerDownError:
            if delay_s is None:
                raise
            clock.sleep(delay_s)
            continue
        return


def _unfinished(
    paths: RunPaths, machine: Machine, folder: str, recorded: Set[str], timeout_s: float
) -> list[QueuedJob]:
    """Return the run's jobs that have not ended. That squeue lists none is confirmed by the controller.

    Queries all jobs, because a follow-up job may be recorded nowhere.
    """

    def ours(jobs: Iterable[QueuedJob]) -> list[QueuedJob]:
        return [job for job in jobs if folder in (job.folder, job.run_folder) and not job.has_ended]

    with contextlib.suppress(UserError):
        if listed := ours(queue.jobs(machine, timeout_s)):
            return listed
    try:
        return ours(asking.shown_jobs(machine, timeout_s))
    except UserError as error:
        jobs = f"Slurm was asked to cancel {', '.join(sorted(recorded))}" if recorded else "no job of it is recorded"
        raise UserError(
            f"run {paths.id}: {jobs}, and whether it has ended can't be seen: {error}",
            f"Look again later: trainjob status {paths.id}",
        ) from error
