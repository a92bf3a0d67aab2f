"""Submission: a rendered job becomes a run directory and is handed over, or waits for other runs."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from trainjob.backends import containers, folder, mirror, registry
from trainjob.backends.base import NotSubmittedError, UnknownOutcomeError, place_of
from trainjob.backends.project import Project, Selection
from trainjob.cluster import slurm_text
from trainjob.cluster.slurm_text import Array
from trainjob.contract import clock, states
from trainjob.contract.environment import TRY_ON_CPUS, set_redirects
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths, with_home
from trainjob.kinds import table
from trainjob.lifecycle import ledger
from trainjob.lifecycle.ledger import Charge
from trainjob.lifecycle.lock import locked
from trainjob.machines.process import NotStartedError
from trainjob.machines.ssh.failures import SshError
from trainjob.observe import index
from trainjob.records import attempts
from trainjob.records import job as jobs
from trainjob.records import submission as submissions
from trainjob.records.submission import Remote, Submission
from trainjob.render.rendered import File, Rendered

if TYPE_CHECKING:
    from trainjob.machines.slurm.allocations import Allocation
    from trainjob.observe.status import Snapshot

_SAME_JOB_WITHIN_S = 60
# A submission whose outcome is unknown may be repeated by hand much later.
_UNKNOWN_WITHIN_S = 7 * 24 * 3600
# What a resume of the run takes, which another command may begin as soon as the folder is there.
_LOCK_S = 60.0


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
    remote: Remote | None = None  # where run directories lie on another machine; None: in runs_dir
    after: tuple[RunPaths, ...] = ()  # the runs that this one waits for
    share: str = "none"  # who else may read the run directory: none, group or all
    inside: Allocation | None = None  # the job that holds its nodes, in which it is a step
    is_listed: bool = True  # by `trainjob list`; a run that another command needs for itself is not
    charge: Charge | None = None  # what it may cost, and the budgets that must hold it; None: nothing
    holds_nodes: bool = False  # for runs that begin in its job
    before: Callable[[RunPaths], None] = lambda _paths: None  # is told the run directory before anything of it exists


def refuse_redirects(environ: Mapping[str, str]) -> None:
    """Raise UserError while a variable that only a rehearsal may set is set."""
    redirected = set_redirects(environ)
    if redirected:
        named = ", ".join(f"{name}={value}" for name, value in redirected.items())
        raise UserError(
            f"{named}: only a rehearsal redirects a job; submitted for real, it would run something other than what "
            "was rendered",
            f"Run: unset {' '.join(redirected)}" + (f". {TRY_ON_CPUS}" if "TRAINJOB_DEVICE" in redirected else ""),
        )


def submit(handover: Handover, *, again: bool = False) -> RunPaths:
    """Return the run, which has begun or waits.

    Raises UserError when the same job was submitted within the last minute and `again` is not set, and for more than is
    left of a budget.
    """
    project, selection = handover.project.record(), handover.selection
    digest = _digest(handover, project)
    if not again:
        refuse_the_same(digest)
    backend, paths, inside = registry.get(handover.backend), _new_place(handover), handover.inside
    handover.before(paths)
    submission = Submission(
        backend=handover.backend,
        cluster=handover.cluster,
        native=None,
        argv=backend.argv(paths, handover.rendered.script, handover.after, inside and inside.job_id),
        script=handover.rendered.script,
        submitted_at=datetime.fromtimestamp(clock.time(), UTC).isoformat(timespec="seconds"),
        attempt=1,
        digest=digest,
        project={
            **project,
            "start": handover.project.start,
            "copied": 0 if selection is None else len(selection.files),
            "left_out": [] if selection is None else [list(pair) for pair in selection.left_out],
        },
        remote=_remote(handover, paths),
        after=tuple(one.id for one in handover.after),
        inside=inside and inside.job_id,
        holds_nodes=handover.holds_nodes,
    )
    files = {**handover.rendered.files, paths.submission.name: File(submission.to_json(paths), 0o644)}
    if inside is not None:  # its first attempt need not ask again
        files[paths.allocation.name] = File(f"{inside.shown}\n".encode(), 0o600)
    rendered = handover.rendered._replace(files=files)
    _begin(
        paths,
        submission,
        lambda: folder.create(paths.folder, rendered, handover.project, handover.selection, handover.share),
        charge=handover.charge,
        is_listed=handover.is_listed,
    )
    return paths


def go_on(now: Snapshot, handover: Handover, say: Callable[[str], None]) -> RunPaths:
    """Return a new run, which continues the ended run `now` elsewhere, in a copy of its run directory.

    `now` stays as it is, and notes where it went on. `say` is called with a line about each checkpoint that the new run
    passes over. Raises UserError where it can't be copied or submitted, and leaves nothing then.
    """
    last = now.submission
    if last is None:
        raise UserError(f"run {now.id} was started by hand", "run its job script again by hand")
    paths, script = _new_place(handover), handover.rendered.script
    submission = last.replace(
        backend=handover.backend,
        cluster=handover.cluster,
        native=None,
        argv=registry.get(handover.backend).argv(paths, script),
        script=script,
        attempt=now.attempt + 1,
        remote=_remote(handover, paths),
        resumed_at=datetime.fromtimestamp(clock.time(), UTC).isoformat(timespec="seconds"),
        image_digest=None,
        cancelled_at=None,
        is_cancelled=False,
        is_unknown=False,
        earlier=(),
        after=(),
        inside=None,
        continues=now.id,
    )

    def copy() -> None:
        mirror.copy(now.paths, last, paths.folder)
        try:
            folder.move_in(paths, handover.rendered, handover.share)
            submission.write(paths)
            last.replace(continued_as=paths.id).write(now.paths)  # before anything can begin
            from trainjob.records import checkpoints

            for line in checkpoints.passed_over(paths.checkpoints):
                say(line)
        except BaseException as error:
            shutil.rmtree(paths.folder, ignore_errors=True)
            if isinstance(error, OSError):
                raise folder.FolderError.of(error, paths.folder) from error
            raise

    put_back = submissions.as_it_is(now.paths)
    try:
        _begin(paths, submission, copy, charge=handover.charge, is_listed=True)
    except BaseException:
        if not paths.folder.exists():  # it has certainly not begun
            with contextlib.suppress(OSError):
                put_back()
        raise
    return paths


def _begin(
    paths: RunPaths, submission: Submission, fill: Callable[[], object], *, charge: Charge | None, is_listed: bool
) -> None:
    """Make the run directory by `fill`, and hand it over. A run that certainly never began leaves nothing.

    Raises OverBudgetError for more than is left of a budget.
    """
    with ledger.charged(paths, charge) as begins:
        try:
            # In the index before it exists, so that what an interruption leaves is found; never without its record.
            if is_listed:
                index.add(paths)
            try:
                fill()
            except UserError:
                index.forget(paths.id)
                raise
            begins()
            with contextlib.ExitStack() as held:
                # So that no `resume` takes it for an interrupted submission.
                try:
                    held.enter_context(locked(paths, "trainjob submit", wait_s=_LOCK_S))
                except UserError as error:
                    raise NotSubmittedError(error.text, error.cure) from None
                recorded = submissions.read(paths)  # anew, under the lock
                if recorded is None or recorded.native is None:  # it has not been resumed already
                    hand_over(paths, submission, before=recorded)
        except (NotSubmittedError, index.IndexUnwritableError):
            # The run certainly never began: it must not be in the way of the next try.
            with contextlib.suppress(UserError, OSError):
                mirror.remove(submission)
            # The index last: a folder that it does not name would never be found.
            shutil.rmtree(paths.folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                index.forget(paths.id)
            raise


def _remote(handover: Handover, paths: RunPaths) -> Remote | None:
    return handover.remote and dataclasses.replace(handover.remote, folder=f"{handover.remote.folder}/{paths.id}")


def _new_place(handover: Handover) -> RunPaths:
    runs_dir = with_home(handover.runs_dir).resolve()
    while os.path.lexists(target := runs_dir / index.new_id(handover.name)):
        pass
    registry.get(handover.backend).refuse_folder(target)
    return RunPaths(target)


def _digest(handover: Handover, project: Mapping[str, str | None]) -> str:
    text = f"{handover.cluster}\0{handover.rendered.digest}\0{project['commit']}\0{project['diff']}\0{project['top']}"
    digest = hashlib.sha256(text.encode(errors="surrogateescape"))
    # Git does not notice changes to files that it does not track, nor any outside of a repository.
    for name in handover.selection.files if handover.selection else ():
        with contextlib.suppress(FileNotFoundError):  # the copy says what has gone meanwhile
            file = (handover.project.top / name).lstat()
            digest.update(f"{name}\0{file.st_size}\0{file.st_mtime_ns}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()


def refuse_the_same(digest: str) -> None:
    """Raise UserError if the same job was submitted within a minute, or in the last week with an unknown outcome."""
    for paths in index.recent(_UNKNOWN_WITHIN_S):
        submission = submissions.read(paths)
        if submission is None or submission.digest != digest or submission.attempt != 1:
            continue
        if _is_known_to_be_nowhere(paths, submission):
            continue
        if attempts.state(paths) in states.RESUMABLE:
            continue  # it ended early, and may be tried again
        age = datetime.fromtimestamp(clock.time(), UTC) - datetime.fromisoformat(submission.submitted_at)
        # A clock that was set back says nothing about the time between them.
        if timedelta() <= age < timedelta(seconds=_SAME_JOB_WITHIN_S):
            raise UserError(
                f"the same job was submitted {age.seconds} s ago, as {paths.id}",
                "give --again to run it a second time",
            )


def _is_known_to_be_nowhere(paths: RunPaths, submission: Submission) -> bool:
    """Return whether a submission of unknown outcome has left no job. Raises UserError where it has, or may have."""
    if submission.native is not None or not registry.has_scheduler(submission.backend):
        return False
    try:
        adopted = registry.adopt(paths, submission)
    except UserError as error:
        raise UserError(
            f"run {paths.id} is the same job, and may have been submitted: {error}",
            f"Look again later: trainjob status {paths.id}; or give --again to run it a second time",
            UnknownOutcomeError.code,
        ) from None
    if adopted is not None:
        raise UserError(
            f"the same job was submitted as run {paths.id}, although that submission did not learn so",
            f"Look at it: trainjob status {paths.id}; or give --again to run it a second time",
        )
    # Another process may be submitting it at this moment.
    return submission.is_unknown


def hand_over(paths: RunPaths, submission: Submission, *, before: Submission | None) -> None:
    """Start the run; it is recorded before and after, so that no interruption loses it.

    `before` is what is recorded now, and again where it is certain that nothing was submitted.
    """
    backend = registry.get(submission.backend)
    # At every attempt: the name may stand for another image by now. Those of a scheduler are on nodes not known yet.
    digest = None if backend.HAS_SCHEDULER else containers.image_digest(paths, submission)
    submission = submission.replace(image_digest=digest or submission.image_digest)
    try:
        _record(paths, submission)
        if submission.remote is not None:
            try:
                mirror.place(paths, submission.remote)
            except UserError as error:
                if isinstance(error, SshError) and error.reached:
                    cure = f"Submit the run with: trainjob resume {paths.id}"
                    raise UserError(f"{error}. Nothing was submitted", cure) from None
                raise NotSubmittedError(error.text, error.cure) from None
        try:
            if submission.resumed_at is None and submission.remote is None:
                folder.refuse_foreign(paths.folder)  # this process has just filled it
            else:
                folder.refuse_foreign_content(*place_of(paths, submission))
            native = backend.start(paths, submission)
        except NotStartedError as error:
            # A limit of open files or processes was reached after the run directory was made.
            raise NotSubmittedError(f"{error.text}, so nothing was submitted", error.cure) from None
    except NotSubmittedError:
        if before is not None:
            with contextlib.suppress(OSError):
                before.write(paths)
        raise
    except UnknownOutcomeError:
        submission.replace(is_unknown=True).write(paths)
        raise
    try:
        # What has begun is worth a second try.
        _record(paths, submission.replace(native=native), tries=2)
    except NotSubmittedError:
        # No command could find it again.
        backend.cancel(paths, submission.replace(native=native), 0.0)
        raise


def _record(paths: RunPaths, submission: Submission, tries: int = 1) -> None:
    """Write submission.json. Raises NotSubmittedError where the disk refuses it."""
    try:
        submission.write(paths)
    except OSError as error:
        if tries > 1:
            _record(paths, submission, tries - 1)
            return
        raise NotSubmittedError(
            f"{paths.submission} can't be written ({error.strerror}), so nothing was submitted",
            "Free some space there (`trainjob prune`), or change runs_dir",
        ) from None


def hand_over_elements(whole: RunPaths, again: Mapping[int, Submission]) -> None:
    """Start some elements of an array, each recorded by itself before and after."""
    put_back = [submissions.as_it_is(whole.of_element(number)) for number in again]
    for number, submission in again.items():
        submission.write(whole.of_element(number))
    first, of_whole = next(iter(again.values())), submissions.read(whole)
    folder.refuse_foreign_content(*place_of(whole, of_whole))
    text = table.recorded_job(jobs.read(whole.job)).array
    elements = Array(tuple(sorted(again)), slurm_text.parse_array(text).at_once if text else None)
    try:
        natives = registry.get(first.backend).start_elements(whole, of_whole, elements, again)
    except NotSubmittedError:
        for put in put_back:
            with contextlib.suppress(OSError):
                put()
        raise
    for number, native in natives.items():
        again[number].replace(native=native).write(whole.of_element(number))


def to_wait_for(runs: Iterable[RunPaths], cluster: str, backend: str, remote: Remote | None) -> tuple[RunPaths, ...]:
    """Return which of `runs` a new run of `cluster` has to wait for: all but those that are COMPLETED already.

    `backend` and `remote` say how the new run is submitted. Raises UserError where that back end keeps no queue, for a
    run that its scheduler does not know, and for one that can't become COMPLETED.
    """
    if not registry.get(backend).HAS_SCHEDULER:
        raise UserError(
            f"--after needs a scheduler that holds the run back, and cluster {cluster} has none",
            "Submit this run when the other one has ended",
        )
    from trainjob.observe.status import statuses  # few submissions wait for a run

    return tuple(now.paths for now in statuses(runs) if not _is_over(now, cluster, backend, remote))


def _is_over(now: Snapshot, cluster: str, backend: str, remote: Remote | None) -> bool:
    """Return whether a run is COMPLETED. Raises UserError where it can't be waited for."""
    if now.submission is None:
        raise UserError(
            f"--after {now.id}: it was submitted by hand",
            "Name its job to sbatch yourself: sbatch --dependency=afterok:JOBID",
        )
    mine, theirs = (None if one is None else (one.host, one.user) for one in (remote, now.submission.remote))
    if registry.get(now.submission.backend) is not registry.get(backend) or mine != theirs:
        raise UserError(
            f"--after {now.id}: it runs on cluster {now.cluster}, and the scheduler of {cluster} does not know it",
            f"Wait until it has ended (trainjob logs {now.id} --follow), then submit this run",
        )
    if now.state == states.COMPLETED:
        return True
    if now.state not in states.ACTIVE or now.submission.native is None:
        raise UserError(
            f"--after {now.id}: it is {now.state}, and a run that waits for it would never start",
            f"Resume it first: trainjob resume {now.id}",
        )
    return False
