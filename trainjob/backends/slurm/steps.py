"""The back end for runs inside an allocation: a run is a step of a job that its user holds, and never touches the job.

The job script is the step on the first node, and the ranks that it starts are another; both have the run's id as name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from trainjob.backends.base import Answer, Liveness, NotSubmittedError, UnknownOutcomeError
from trainjob.backends.slurm import asking, backend, queue
from trainjob.backends.slurm.asking import JobOfRun, slurm_of
from trainjob.cluster.slurm_text import Array
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
POLL_S = 0.2
# The key of a native id that has the steps' name.
_NAME = "step_name"
# URG by its number: not every release knows the name.
_URG = "23"
_APPENDS = 'exec bash "$0" >>logs/scheduler.out 2>&1'

refuse_folder, next_to = backend.refuse_folder, backend.next_to


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
    if submission.attempt > 1:
        # Ranks whose script was killed would write at the same time as the new ones.
        _end(machine, paths, submission, "KILL", 0.0)
    words = argv(paths, submission.script, inside=submission.inside)
    command = package.program_command(
        *(__file__, "start_step", folder, str(submission.attempt), paths.id, f"{START_S:.0f}"),
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
    return _native(paths, submission)


def _native(paths: RunPaths, submission: Submission) -> Native:
    return {**backend.native(paths, submission, str(submission.inside)), _NAME: paths.id}


def start_elements(
    paths: RunPaths,
    submission: Submission | None,  # noqa: ARG001 - see BackEnd
    elements: Array,  # noqa: ARG001 - see BackEnd
    recorded: Mapping[int, Submission],  # noqa: ARG001 - see BackEnd
) -> dict[int, Native]:
    """Raise UserError: an array is jobs of its own."""
    raise UserError(f"run {paths.id} is an array, whose elements are jobs of their own", "submit it with --in none")


def ask(natives: Sequence[Native]) -> list[Answer]:
    """Return whether each run has a step: squeue once for each machine."""
    runs = [JobOfRun.of(native) for native in natives]
    places = list(dict.fromkeys((run.host, run.user, run.slurm_conf) for run in runs))
    answers = dict[int, Answer]()
    with ThreadPoolExecutor(max_workers=8) as pool:
        grouped = [{at: native for at, native in enumerate(natives) if _place(runs[at]) == place} for place in places]
        for found in pool.map(_ask_one_place, grouped):
            answers.update(found)
    return [answers[at] for at in range(len(natives))]


def _place(run: JobOfRun) -> tuple[str | None, str | None, str | None]:
    return run.host, run.user, run.slurm_conf


def _ask_one_place(natives: Mapping[int, Native]) -> dict[int, Answer]:
    runs = {at: JobOfRun.of(native) for at, native in natives.items()}
    machine, timeout_s = next(iter(runs.values())).machine, max(run.query_timeout_s for run in runs.values())
    try:
        listed = _listed(machine, timeout_s)
    except UserError as error:
        return dict.fromkeys(natives, Answer(Liveness.UNKNOWN, note=str(error)))
    alive = {at for at, native in natives.items() if _of(listed, native["job_id"], native[_NAME])}
    gone = [at for at in natives if at not in alive]
    # An empty answer is no proof: what the controller says of the job is.
    second = asking.second_answers(machine, sorted({runs[at].id for at in gone}), timeout_s) if gone else {}
    again = _listed_or_error(machine, timeout_s) if gone else ()
    answers = {at: Answer(Liveness.ALIVE, scheduler={"job_id": runs[at].id}) for at in alive}
    for at in gone:
        native, jobs = natives[at], second[runs[at].id]
        if isinstance(again, UserError) or isinstance(jobs, UserError):
            why = again if isinstance(again, UserError) else jobs
            answers[at] = Answer(Liveness.UNKNOWN, note=f"squeue lists no step of it, and {why}")
        elif _of(again, native["job_id"], native[_NAME]):
            answers[at] = Answer(Liveness.ALIVE, scheduler={"job_id": runs[at].id})
        elif jobs and all(job.has_ended for job in jobs):
            ended = queue.ended(jobs[-1].state)
            note = f"the job that it ran in, {runs[at].id}, has ended: {ended.note}"
            answers[at] = Answer(Liveness.GONE, ended.state, note)
        else:
            note = f"its step in job {runs[at].id} has ended, and its files do not say how"
            answers[at] = Answer(Liveness.GONE, note=note)
    return answers


def _listed(machine: Machine, timeout_s: float) -> list[tuple[str, str]]:
    """Return the id and the name of every step that runs. Raises as commands.call does."""
    command = package.program_command(__file__, "list_steps")
    printed = commands.call(machine, command, program="squeue", timeout_s=timeout_s).text
    rows = [words for line in printed.splitlines() if len(words := line.split(maxsplit=2)) == 3]
    if printed.strip() and not rows:
        raise queue.unreadable("squeue", machine, printed)
    # Of an element of an array Slurm writes ARRAY_ELEMENT.STEP.
    return [(f"{job}.{step.rpartition('.')[2]}", name.strip()) for job, step, name in rows]


def _listed_or_error(machine: Machine, timeout_s: float) -> Iterable[tuple[str, str]] | UserError:
    try:
        return _listed(machine, timeout_s)
    except UserError as error:
        return error


def _of(listed: Iterable[tuple[str, str]], job_id: str, name: str) -> list[str]:
    """Return the steps of a run, its script's first."""
    mine = [step for step, named in listed if named == name and step.startswith(f"{job_id}.")]
    return sorted(mine, key=lambda step: (len(step), step))


def look_for(paths: RunPaths, submission: Submission) -> Native | None:
    """Return the native id of a run whose submission was interrupted, if it has begun. Raises UserError."""
    machine, _ = slurm_of(paths, submission)
    has_begun = attempts.current(paths) >= submission.attempt
    if submission.inside is None:
        return None
    if has_begun or _of(_listed(machine, asking.query_timeout_s(paths)), submission.inside, paths.id):
        return _native(paths, submission)
    return None


def identify(native: Native) -> dict[str, str]:
    """Return the id of the job that the run is inside of."""
    return {"job_id": JobOfRun.of(native).id}


def interrupt(native: Native) -> None:
    """Send USR1 to the job script, which passes it on to the ranks."""
    run = JobOfRun.of(native)
    own = _of(_listed(run.machine, run.query_timeout_s), native["job_id"], native[_NAME])
    if own:
        commands.call(run.machine, ["scancel", "--signal=USR1", own[0]], timeout_s=run.query_timeout_s)


def start_soon(native: Native) -> None:
    """Do nothing: no run inside an allocation is held back."""


def cancel(paths: RunPaths, submission: Submission, grace_s: float) -> None:
    """End the steps of the run and nothing else of the job: the script is asked first, and passes it on.

    Raises UserError when Slurm can't be asked, or a step survives KILL.
    """
    machine, _ = slurm_of(paths, submission)
    if submission.inside is not None and not _end(machine, paths, submission, "TERM", grace_s):
        _end(machine, paths, submission, "KILL", KILL_S)


def _end(machine: Machine, paths: RunPaths, submission: Submission, signal: str, limit_s: float) -> bool:
    """Send a signal to the run's script, or KILL to all its steps; return whether none is left within `limit_s`.

    Raises UserError where one survives KILL.
    """
    deadline = clock.monotonic() + max(limit_s, KILL_S if signal == "KILL" else 0.0)
    told = set[str]()
    while own := _of(_listed(machine, asking.query_timeout_s(paths)), str(submission.inside), paths.id):
        for step in own if signal == "KILL" else own[:1]:
            if step not in told:
                told.add(step)
                # With TERM the script's own srun would kill the ranks, which get their time.
                sent = _URG if signal == "TERM" and len(own) > 1 else signal
                backend.scancel(machine, [f"--signal={sent}", step], asking.query_timeout_s(paths))
        if clock.monotonic() > deadline:
            if signal != "KILL":
                return False
            raise UserError(
                f"run {paths.id}: Slurm was asked to end {', '.join(own)}, and has not yet",
                f"Look again later: trainjob status {paths.id}",
            )
        clock.sleep(POLL_S)
    return True
