"""Submission: a rendered job becomes a run directory and is handed over."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from trainjob.cluster import array
from trainjob.cluster.array import Array
from trainjob.contract import job as jobs
from trainjob.contract.environment import set_redirects
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.render.rendered import Rendered
from trainjob.runs import index
from trainjob.runs.waiting import Waiting
from trainjob.submit import backends, containers, folder, mirror
from trainjob.submit.base import NotSubmittedError, Remote, Submission, read_submission
from trainjob.submit.project import Project, Selection
from trainjob.submit.slurm import backend as slurm
from trainjob.submit.ssh.failures import SshError

_SAME_JOB_WITHIN_S = 60


@dataclass(frozen=True)
class Handover:
    """Everything a run is made of."""

    rendered: Rendered
    name: str
    cluster: str
    backend: str
    runs_dir: Path
    project: Project
    selection: Selection | None  # None: the project is recorded and not copied
    remote: Remote | None = None  # where run directories lie over there; None: in runs_dir
    after: Waiting | None = None  # the runs that this one waits for


def refuse_redirects(environ: Mapping[str, str]) -> None:
    """Raise UserError while a variable that only a rehearsal may set is set."""
    found = set_redirects(environ)
    if found:
        named = ", ".join(f"{name}={value}" for name, value in found.items())
        raise UserError(
            f"{named}: only a rehearsal redirects a job, and a real submit would run something else than it "
            f"shows. Run: unset {' '.join(found)}"
        )


def submit(handover: Handover, *, again: bool = False) -> RunPaths:
    """Return the run that now has begun or waits.

    Raises UserError when the same job was submitted within the last minute and `again` was not asked for.
    """
    record = handover.project.record()
    digest = _digest(handover, record)
    if not again:
        _refuse_the_same(digest)
    paths = _new_folder(handover)
    index.add(paths)
    submission = Submission(
        backend=handover.backend,
        cluster=handover.cluster,
        native=None,
        argv=_argv(handover, paths),
        script=handover.rendered.script,
        submitted_at=_now().isoformat(timespec="seconds"),
        attempt=1,
        digest=digest,
        project=_project_record(handover, record),
        remote=_remote(handover, paths),
        after=() if handover.after is None else handover.after.runs,
    )
    try:
        hand_over(paths, submission)
    except NotSubmittedError:
        _discard(paths)
        raise
    return paths


def _argv(handover: Handover, paths: RunPaths) -> list[str]:
    script = handover.rendered.script
    if handover.after is not None:
        return slurm.argv(paths, script, handover.after.options)
    return backends.get(handover.backend).argv(paths, script)


def _remote(handover: Handover, paths: RunPaths) -> Remote | None:
    where = handover.remote
    return None if where is None else dataclasses.replace(where, folder=f"{where.folder}/{paths.id}")


def _discard(paths: RunPaths) -> None:
    """Leave nothing of a run that certainly never began: it would only be in the way of the next try."""
    with contextlib.suppress(UserError):
        mirror.remove(paths)
    index.forget(paths.id)
    shutil.rmtree(paths.folder, ignore_errors=True)


def hand_over(paths: RunPaths, submission: Submission) -> None:
    """Start the run; it is recorded before and after, so that no interruption loses it."""
    # At every attempt: a name may stand for another image by now.
    submission = submission.replace(image_digest=containers.image_digest(paths) or submission.image_digest)
    submission.write(paths)
    if submission.remote is not None:
        _send(paths, submission.remote)
    native = backends.get(submission.backend).start(paths, submission.script)
    submission.replace(native=native).write(paths)


def hand_over_tasks(whole: RunPaths, tasks: Mapping[int, Submission]) -> None:
    """Start some tasks of an array, each recorded by itself before and after."""
    for number, submission in tasks.items():
        submission.write(whole.of_task(number))
    first = next(iter(tasks.values()))
    asked = jobs.read(whole.job).asked["job"].get("array")
    again = Array(tuple(sorted(tasks)), array.parse(asked).at_once if asked else None)
    natives = slurm.start_tasks(whole, again, first.script)
    for number, native in natives.items():
        tasks[number].replace(native=native).write(whole.of_task(number))


def _send(paths: RunPaths, remote: Remote) -> None:
    try:
        mirror.place(paths, remote)
    except SshError as error:
        if not error.reached:
            raise NotSubmittedError(str(error)) from None
        raise UserError(f"{error}. Nothing was submitted yet: `trainjob resume {paths.id}` goes on") from None
    except UserError as error:
        raise NotSubmittedError(str(error)) from None


def _new_folder(handover: Handover) -> RunPaths:
    runs_dir = handover.runs_dir.expanduser().resolve()
    target = runs_dir / index.new_id(handover.name)
    while os.path.lexists(target):
        target = runs_dir / index.new_id(handover.name)
    return folder.create(target, handover.rendered, handover.project, handover.selection)


def _digest(handover: Handover, record: Mapping[str, Any]) -> str:
    text = f"{handover.cluster}\0{handover.rendered.digest}\0{record['commit']}\0{record['diff']}\0{record['top']}"
    digest = hashlib.sha256(text.encode(errors="surrogateescape"))
    # What git does not say: another content of a file that it doesn't track, or where there is no git.
    for name in handover.selection.files if handover.selection else ():
        found = (handover.project.top / name).lstat()
        digest.update(f"{name}\0{found.st_size}\0{found.st_mtime_ns}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _refuse_the_same(digest: str) -> None:
    for paths in index.recent(_SAME_JOB_WITHIN_S):
        submission = read_submission(paths)
        if submission and submission.digest == digest and submission.attempt == 1:
            age = _now() - datetime.fromisoformat(submission.submitted_at)
            if age < timedelta(seconds=_SAME_JOB_WITHIN_S):
                raise UserError(
                    f"the same job was submitted {age.seconds} s ago, as {paths.id}: "
                    "give --again to run it a second time"
                )


def _project_record(handover: Handover, record: Mapping[str, Any]) -> dict[str, Any]:
    selection = handover.selection
    return {
        **record,
        "start": handover.project.start,
        "copied": 0 if selection is None else len(selection.files),
        "left_out": [] if selection is None else [list(pair) for pair in selection.left_out],
    }


def _now() -> datetime:
    return datetime.now(UTC)


def next_attempt(paths: RunPaths, **changes: Any) -> Submission:
    """Return the submission that starts one more attempt of a run. Raises UserError for a run never submitted."""
    last = read_submission(paths)
    if last is None:
        raise UserError(f"run {paths.id} was started by hand: run its job script again by hand")
    earlier = [*last.earlier, *([] if last.native is None else [last.native])]
    again = dataclasses.replace(last, **{"native": None, "cancelled_at": None, "earlier": earlier, **changes})
    if again.attempt == last.attempt:
        return again
    # What the first attempt waited for is over.
    return again.replace(after=(), argv=backends.get(last.backend).argv(paths, last.script))


def cancelled_now(paths: RunPaths, submission: Submission) -> None:
    """Record that the run is being cancelled, for the case that its own script can't any more."""
    submission.replace(cancelled_at=_now().isoformat(timespec="seconds")).write(paths)
