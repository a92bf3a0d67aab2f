"""The back end for arrays whose elements are steps of one job: what it says of the job holds for each element."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from trainjob.backends.base import Answer, Liveness
from trainjob.backends.slurm import asking, backend, steps
from trainjob.backends.slurm.asking import JobOfRun
from trainjob.cluster.slurm_text import Array, ranges
from trainjob.contract import clock, states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import ELEMENTS, RunPaths
from trainjob.machines import remote_files
from trainjob.records import submission as submissions
from trainjob.records.submission import ELEMENT, Native, Submission

HAS_SCHEDULER = True
_OF_ELEMENT = re.compile(rf"/{ELEMENTS}/([0-9]+)$")

refuse_folder, argv, start, start_soon = backend.refuse_folder, backend.argv, backend.start, backend.start_soon
next_to = backend.next_to


def identify(native: Native) -> dict[str, str]:
    """Return the id of the run's job, which is that of each element."""
    return backend.identify(_whole(native))


def _whole(native: Native) -> Native:
    """Return the native id of the job that an element is a step of."""
    folder = _OF_ELEMENT.sub("", str(native["folder"]))
    return {**{key: value for key, value in native.items() if key != ELEMENT}, "folder": folder}


def _step(native: Native) -> JobOfRun | None:
    """Return the run by which an element's step is found; None for the native id of the whole run."""
    number = native.get(ELEMENT)
    folder = str(native["folder"]) if number is None else f"{native['folder']}/{ELEMENTS}/{number}"
    own = {**_whole(native), "folder": folder}
    return JobOfRun.of(own) if _OF_ELEMENT.search(folder) else None


def start_elements(
    paths: RunPaths, submission: Submission | None, elements: Array, recorded: Mapping[int, Submission]
) -> dict[int, Native]:
    """Return the native ids of some elements, which begin once more, in a job of their own. Raises as `start`.

    Raises UserError while a job of the run waits or runs: it would run the same elements.
    """
    others = [one for one in map(submissions.read, [paths, *paths.elements()]) if one is not None]
    earlier = {JobOfRun.of(_whole(one.native)).id for one in others if one.native is not None}
    argument = f"elements={ranges(elements.numbers)}"
    job_id = backend.start_again(paths, submission, recorded, arguments=[argument], earlier=earlier)
    return {number: backend.native(paths.of_element(number), recorded[number], job_id) for number in elements.numbers}


def ask(natives: Sequence[Native]) -> list[Answer]:
    """Return what Slurm says of the job, for the whole run and for each element."""
    answers = zip(natives, asking.ask([_whole(native) for native in natives]), strict=True)
    # That the job waits says nothing of an element that has ended.
    return [
        dataclasses.replace(answer, state=None)
        if _step(native) is not None and answer.liveness is Liveness.ALIVE
        else answer
        for native, answer in answers
    ]


def look_for(paths: RunPaths, submission: Submission) -> Native | None:
    """Return the native id that a submission whose outcome is not known has left; None if it has left none."""
    remote = submission.remote
    folder = None if remote is None else dataclasses.replace(remote, folder=_OF_ELEMENT.sub("", remote.folder))
    found = backend.look_for(paths.whole, submission.replace(remote=folder))
    return found if found is None or paths.element is None else {**found, ELEMENT: paths.element}


def interrupt(native: Native) -> None:
    """Send USR1 to the job script, which asks all its elements; or to the ranks of one element."""
    if (run := _step(native)) is None:
        backend.interrupt(native)
    else:
        steps.send(run, steps.steps_of(run), "USR1")


def signal_ranks(paths: RunPaths, native: Native, signal: str) -> None:
    """Send a signal to the ranks of all elements, or of one."""
    if (run := _step(native)) is None:
        backend.signal_ranks(paths, native, signal)
    else:
        steps.send(run, steps.steps_of(run), signal)


def cancel(paths: RunPaths, submission: Submission, grace_s: float) -> None:
    """Cancel the job, or one element, whose script the job's own ends; return when nothing of it is left.

    Raises UserError when Slurm can't be asked, or takes longer than `grace_s` and a minute and a half.
    """
    native, run = submission.native, None if submission.native is None else _step(submission.native)
    if native is None or run is None:
        backend.cancel(paths, submission, grace_s)
        return
    machine, whole = run.machine, _whole(native)
    remote_files.write_word(machine, f"{whole['folder']}/{paths.cancels.name}/{paths.element}", "cancel")
    kill_at, deadline = clock.monotonic() + grace_s, clock.monotonic() + grace_s + backend.END_S
    while (answer := asking.ask([whole])[0]).liveness is not Liveness.GONE:
        word = machine.run(["cat", f"{run.folder}/{paths.state.name}"], check=False).text.strip()
        if word in states.ENDED:
            return
        if answer.state == states.PENDING:  # no script of the job's is there to record it
            for name, text in ((paths.attempt.name, str(submission.attempt)), (paths.state.name, states.CANCELLED)):
                remote_files.write_word(machine, f"{run.folder}/{name}", text)
            return
        if clock.monotonic() > kill_at:
            steps.send(run, steps.steps_of(run), "KILL")
        if clock.monotonic() > deadline:
            raise UserError(
                f"run {paths.id}: its job {run.id} was asked to end it, and has not yet",
                f"Look again later: trainjob status {paths.id}",
            )
        clock.sleep(backend.POLL_S)
