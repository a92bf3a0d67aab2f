"""From a prepared request to a run: what is refused, what is handed over, and what resumes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence

from trainjob.check.checks import problems
from trainjob.check.context import Context, Depth
from trainjob.cluster.site import refuse_missing_facts
from trainjob.contract import secrets
from trainjob.contract.errors import Problem, ProblemsError, UserError, of_error
from trainjob.contract.paths import RunPaths
from trainjob.contract.quoting import QuotingError
from trainjob.render.directives import DirectiveError
from trainjob.requests.margin import follow_checkpoints
from trainjob.requests.prepared import Prepared, rendered
from trainjob.runs import index, notify, start, waiting
from trainjob.runs import resume as resuming
from trainjob.runs.lock import locked
from trainjob.runs.status import status
from trainjob.submit import backends
from trainjob.submit.base import Remote
from trainjob.submit.folder import write_again


def find_problems(prepared: Prepared, depth: Depth, context: Context | None = None) -> list[Problem]:
    """Return what is wrong with a job before it is queued. `context` holds answers that need not be asked for again."""
    from trainjob.predict import earlier

    found = problems(context or context_of(prepared), depth)
    with contextlib.suppress(OSError):  # earlier runs that can't be read tell nothing
        found += earlier.too_late_for_a_checkpoint(prepared.request)
    return found


def context_of(prepared: Prepared) -> Context:
    """Return what checks look at. What the job script can't carry is for a check to say."""
    request, project, selection, machine = prepared.request, prepared.project, prepared.selection, prepared.machine
    try:
        files = prepared.render()
    except (DirectiveError, QuotingError) as error:
        return Context(request, project, selection, machine, refused=of_error(error.code, error))
    return Context(request, project, selection, machine, files.files[files.script].content)


def refuse_problems(prepared: Prepared) -> None:
    """Raise ProblemsError with everything that is wrong with a job; whole data sets are not read."""
    found = find_problems(prepared, Depth(scheduler=True))
    if found:
        raise ProblemsError.of_all(found, "; ")


def submit(
    prepared: Prepared,
    *,
    after: Sequence[str] = (),
    again: bool = False,
    check: bool = True,
    allow_secret_env: bool = False,
) -> RunPaths:
    """Return the run that has begun or waits in a queue. `after` names runs that it waits for, under a scheduler.

    Raises UserError for a set redirect, missing site facts, every problem that `check` would find (unless `check` is
    False), a configuration of the user's that can't be read, and the same job within a minute unless `again`.
    """
    start.refuse_redirects(os.environ)
    notify.configured()
    if not allow_secret_env:
        refuse_secrets(prepared)
    files = prepared.render()
    refuse_missing_facts(prepared.named_cluster.name, prepared.named_cluster.cluster)
    _refuse_no_job(prepared)
    if check:
        refuse_problems(prepared)
    remote = prepared.remote()
    handover = start.Handover(
        rendered=files,
        name=prepared.request.plan.name,
        cluster=prepared.named_cluster.name,
        backend=backends.name_for(prepared.named_cluster.cluster),
        runs_dir=prepared.runs_dir,
        share=prepared.named_cluster.cluster.share,
        project=prepared.project,
        selection=prepared.selection,
        remote=remote,
        after=_to_wait_for(prepared, after, remote),
    )
    paths = start.submit(handover, again=again)
    notify.watch(paths)
    _predict(prepared, paths)
    return paths


def _predict(prepared: Prepared, paths: RunPaths) -> None:
    """Store what earlier runs let expect of this one. Where that fails, nothing else does."""
    from trainjob.predict import earlier

    with contextlib.suppress(OSError):
        predicted = earlier.predict(prepared.request)
        if predicted is not None:
            predicted.write(paths)


def refuse_secrets(prepared: Prepared) -> None:
    """Raise UserError for a variable of the job whose name looks like a secret's: its value would be in the script."""
    named = [name for name in prepared.request.job.env if secrets.is_secret_name(name)]
    if named:
        raise UserError(
            f"--env {named[0]}: the name looks like a secret's, and its value would stand in the job script and in "
            "job.json",
            f"write {named[0]}=… into the file that secrets_file in the cluster file names (mode 0600), or give "
            "--allow-secret-env if it is no secret",
            "secret-env",
        )


def _refuse_no_job(prepared: Prepared) -> None:
    """Raise UserError where nobody said what to run: the default task is for a first try on one's own machine."""
    job = prepared.request.job
    if job.task is None and job.command is None and prepared.named_cluster.cluster.kind != "local":
        raise UserError(
            f"no job is given, and cluster {prepared.named_cluster.name} is shared with others",
            "give --task digits-cnn for a first run, --task module:attribute or --job FILE for your own task, or a "
            "command after --",
            "no-job",
        )


def _to_wait_for(prepared: Prepared, runs: Sequence[str], remote: Remote | None) -> tuple[RunPaths, ...]:
    if not runs:
        return ()
    found = prepared.named_cluster
    return waiting.to_wait_for([index.find(run) for run in runs], found.name, backends.name_for(found.cluster), remote)


def resume(
    paths: RunPaths, *, instances: int | None = None, from_scratch: bool = False, warn: Callable[[str], None]
) -> None:
    """Start the next attempt of a run, with another number of instances and the same global batch where one is given.

    With `from_scratch` all checkpoints are set aside first; `warn` is called with a line about each checkpoint that the
    attempt passes over, the number that the last one could not write, and a margin before the time limit that is too
    short for them, which becomes longer unless the user has stated it. Raises UserError for another `resume` under
    way, a set redirect, a run that can't be resumed, checkpoints that are all damaged, and a number that does not
    divide the batch.
    """
    start.refuse_redirects(os.environ)
    with locked(paths.whole, "trainjob resume"):
        resuming.check_resumable(paths)
        lost = status(paths).checkpoints_not_written
        if lost:
            warn(f"{lost} checkpoint{'s' if lost > 1 else ''} of the last attempt NOT written")
        if from_scratch:
            resuming.start_over(paths)
        else:
            for line in resuming.passed_over(paths):
                warn(line)
        request = None if instances is None else resuming.with_instances(paths, instances)
        request = follow_checkpoints(paths, request, warn)
        if request is not None:
            write_again(paths, rendered(request))
        resuming.resume(paths)
        notify.watch(paths)
