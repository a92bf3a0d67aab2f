"""The back end for runs inside an allocation: a run is a step of a job that its user holds, and never touches the job.

The job script is the step on the first node, and the ranks that it starts are another; both have the run's id as name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from trainjob.backends.base import Answer, Liveness, NotSubmittedError, UnknownOutcomeError
from trainjob.backends.slurm import asking, backend, queue
from trainjob.backends.slurm.asking import JobOfRun, SecondAnswer, slurm_of
from trainjob.contract import clock, package
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.machines.machine import Machine
from trainjob.machines.slurm import commands
from trainjob.records import attempts
from trainjob.records.submission import Native, Submission

# It begins no further attempts, but knows a step whose submission was interrupted, and is asked as rarely.
HAS_SCHEDULER = True
# What a step may take to begin: a controller that is busy, a node that wakes up.
START_S = 120.0
# What a step may take to end after KILL.
KILL_S = 60.0
# URG by its number: not every release knows the name.
_URG = "23"
_APPENDS = 'exec bash "$0" >>logs/scheduler.out 2>&1'

refuse_folder, next_to, identify = backend.refuse_folder, backend.next_to, backend.identify


def argv(paths: RunPaths, script: str, after: Sequence[RunPaths] = (), inside: str | None = None) -> list[str]:
    """Return the command that starts the job script as a step of job `inside`."""
    if after:
        raise UserError("--after: a run inside an allocation starts at once", "give --in none to wait in the queue")
    options = ["--overlap", "--nodes=1", "--ntasks=1", "--relative=0", "--mem=0", "--gres=none"]
    streams = ["--input=none", "--propagate=NONE", f"--job-name={paths.id}"]
    # The script opens its log itself: what srun opens ends with srun.
    return ["srun", f"--jobid={inside}", *options, *streams, "sh", "-c", _APPENDS, script]


def start(paths: RunPaths, submission: Submission) -> Native:
    """Return the native id of the run, whose script has begun.

    Raises NotSubmittedError when it is certain that nothing has begun, UnknownOutcomeError when it is not.
    """
    machine, folder = slurm_of(paths, submission)
    if submission.inside is None:
        raise NotSubmittedError(f"run {paths.id} names no allocation", "Submit it again with --in JOBID")
    native = backend.native(paths, submission, submission.inside)
    if submission.attempt > 1:
        # Ranks whose script was killed would write at the same time as the new ones, in whichever job they are.
        try:
            for run in {JobOfRun.of(one) for one in (*submission.earlier[-1:], native)}:
                _end(run, "KILL", KILL_S)
        except UserError as error:
            raise NotSubmittedError(error.text, error.cure) from None
    words = argv(paths, submission.script, inside=submission.inside)
    command = package.program_command(
        *(__file__, "start_step", folder, str(submission.attempt), submission.inside, paths.id, f"{START_S:.0f}"),
        *words,
        interpreter="bash",
    )
    lost = f"it is not known whether run {paths.id} has begun"
    try:
        commands.call(machine, command, program="srun", timeout_s=START_S + commands.MARGIN_S)
    except commands.ControllerDownError as error:
        if not error.is_lost:
            raise NotSubmittedError(error.text, "Submit it again later") from None
        raise UnknownOutcomeError(f"{error.text}: {lost}", f"`trainjob resume {paths.id}` looks for its step") from None
    except (commands.SlurmRefusedError, commands.SlurmMissingError) as error:
        cure = error.cure or "squeue lists your jobs; --in none submits it to the queue"
        raise NotSubmittedError(error.text, cure) from None
    return native


def start_elements(paths: RunPaths, *_: object) -> dict[int, Native]:
    """Raise UserError: an array is jobs of its own."""
    raise UserError(f"run {paths.id} is an array, whose elements are jobs of their own", "submit it with --in none")


def ask(natives: Sequence[Native]) -> list[Answer]:
    """Return whether each run has a step: squeue once for each machine, and again for runs that it does not list."""
    return asking.by_place(natives, _ask_one_place)


def _ask_one_place(runs: Sequence[JobOfRun]) -> Iterable[tuple[JobOfRun, Answer]]:
    machine, timeout_s = runs[0].machine, max(run.query_timeout_s for run in runs)
    listed, second = list[tuple[str, str]](), dict[str, SecondAnswer]()
    try:
        listed += _listed(machine, timeout_s)
        missing = sorted({run.id for run in runs if not _of(run, listed)})
        if missing:
            # An empty answer is no proof: what the controller says of the job is.
            second = asking.second_answers(machine, missing, timeout_s)
            listed += _listed(machine, timeout_s)
    except UserError as error:
        second = dict.fromkeys((run.id for run in runs), error)
    return [(run, _answer(run, second.get(run.id, ()), has_step=bool(_of(run, listed)))) for run in runs]


def _answer(run: JobOfRun, second: SecondAnswer, *, has_step: bool) -> Answer:
    if has_step:
        return Answer(Liveness.ALIVE, scheduler={"job_id": run.id})
    if isinstance(second, UserError):
        return Answer(Liveness.UNKNOWN, note=f"squeue has listed no step of it, and {second}")
    # The number of an array shows all its elements, one of which has this number itself.
    own = [job for job in second if job.id == run.id]
    if own and own[0].has_ended:
        ended = queue.ended(own[0].state)
        return Answer(Liveness.GONE, ended.state, f"the job that it ran in, {run.id}, has ended: {ended.note}")
    return Answer(Liveness.GONE, note=f"its step in job {run.id} has ended, and its files do not say how")


def _listed(machine: Machine, timeout_s: float) -> list[tuple[str, str]]:
    """Return the id and the name of every step that runs. Raises as commands.call does."""
    command = package.program_command(__file__, "list_steps")
    printed = commands.call(machine, command, program="squeue", timeout_s=timeout_s).text
    rows = [words for line in printed.splitlines() if len(words := line.split(maxsplit=2)) == 3]
    if printed.strip() and not rows:
        raise queue.unreadable("squeue", machine, printed)
    # Of an element of an array Slurm writes ARRAY_ELEMENT.STEP.
    return [(f"{job}.{step.rpartition('.')[2]}", name.strip()) for job, step, name in rows]


def _of(run: JobOfRun, listed: Iterable[tuple[str, str]]) -> list[str]:
    """Return the steps of a run among those of its user, its script's first."""
    mine = [step for step, name in listed if name == _name(run) and step.startswith(f"{run.id}.")]
    return sorted(mine, key=lambda step: (len(step), step))


def _name(run: JobOfRun) -> str:
    return os.path.basename(run.folder)


def steps_of(run: JobOfRun) -> list[str]:
    """Return the steps of a run, its script's first. One empty answer of squeue's is no proof that there are none."""
    looks = (_of(run, _listed(run.machine, run.query_timeout_s)) for _ in range(2))
    return next(filter(None, looks), [])


def look_for(paths: RunPaths, submission: Submission) -> Native | None:
    """Return the native id of a run whose submission was interrupted, if it has begun. Raises UserError."""
    if submission.inside is None:
        return None
    native = backend.native(paths, submission, submission.inside)
    has_begun = attempts.current(paths) >= submission.attempt
    return native if has_begun or steps_of(JobOfRun.of(native)) else None


def send(run: JobOfRun, steps: Iterable[str], signal: str) -> None:
    """Send a signal to steps of a run. One that has ended is no error."""
    for step in steps:
        backend.scancel(run.machine, [f"--signal={signal}", step], run.query_timeout_s)


def interrupt(native: Native) -> None:
    """Send USR1 to the job script, which passes it on to the ranks."""
    run = JobOfRun.of(native)
    send(run, steps_of(run)[:1], "USR1")


def signal_ranks(paths: RunPaths, native: Native, signal: str) -> None:  # noqa: ARG001 - see BackEnd
    """Send a signal to the steps of the run's ranks, and not to its script's."""
    run = JobOfRun.of(native)
    send(run, steps_of(run)[1:], signal)


def start_soon(native: Native) -> None:
    """Do nothing: no run inside an allocation is held back."""


def cancel(paths: RunPaths, submission: Submission, grace_s: float) -> None:
    """End the steps of the run and nothing else of the job: the script is asked first, and passes it on.

    Raises UserError when Slurm can't be asked, or a step survives KILL.
    """
    if submission.inside is None:
        return
    run = JobOfRun.of(submission.native or backend.native(paths, submission, submission.inside))
    if not _end(run, "TERM", grace_s):
        _end(run, "KILL", KILL_S)


def _end(run: JobOfRun, signal: str, limit_s: float) -> bool:
    """Send a signal to the run's script, or KILL to all its steps; return whether none is left within `limit_s`.

    Raises UserError where one survives KILL.
    """
    deadline = clock.monotonic() + limit_s
    told = set[str]()
    while own := steps_of(run):
        new = [step for step in (own if signal == "KILL" else own[:1]) if step not in told]
        # With TERM the script's own srun would kill the ranks, which get their time.
        send(run, new, _URG if signal == "TERM" and len(own) > 1 else signal)
        told.update(new)
        if clock.monotonic() > deadline:
            if signal != "KILL":
                return False
            raise UserError(
                f"run {_name(run)}: Slurm was asked to end {', '.join(own)}, and has not yet",
                f"Look again later: trainjob status {_name(run)}",
            )
        clock.sleep(backend.POLL_S)
    return True
