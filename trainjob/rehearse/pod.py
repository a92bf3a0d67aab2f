"""Rehearses a job for a pod: its own script, with stand-ins for poprun, vipu, poptorch and popdist on PATH."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from trainjob.backends import folder
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.kinds.pod.model import PodCluster
from trainjob.machines import process, processes
from trainjob.machines.access import HERE
from trainjob.records import attempts, failure, progress
from trainjob.rehearse.base import Clock, Rehearsal, Verdict
from trainjob.rehearse.pod_environment import environment

_POLL_S = 0.1
_EXPECTED = "the job is COMPLETED"


def rehearse(rehearsal: Rehearsal) -> Verdict:
    """Return how the job ended; none of its processes is left. Raises UserError for --inject, which needs Slurm."""
    cluster = PodCluster.of(rehearsal.request.cluster)
    if rehearsal.inject is not None:
        raise UserError(
            f"--inject {rehearsal.inject} works on Slurm clusters only", "Leave it out, or kill a rank yourself"
        )
    clock = Clock()
    with tempfile.TemporaryDirectory(prefix="trainjob-pod-") as place:
        environ = environment(Path(place), cluster, cluster.ipus, rehearsal.redirects)
        project = rehearsal.project if rehearsal.selection is not None else None
        paths = folder.create(rehearsal.folder, rehearsal.rendered, project, rehearsal.selection)
        rehearsal.say(f"stand-ins replace poprun, vipu, poptorch and popdist of {rehearsal.request.plan.cluster}")
        clock.done("stand-ins on the paths")
        with _running(paths, rehearsal.rendered.script, environ) as script:
            _wait(paths, script, clock)
    clock.done("ended")
    return _verdict(rehearsal, paths, clock)


@contextlib.contextmanager
def _running(paths: RunPaths, script: str, environ: dict[str, str]) -> Iterator[int]:
    """Yield the process id of the job script, and kill everything of the run afterwards."""
    pid = process.start_detached(["bash", script], folder=paths.folder, log=paths.scheduler_log, environment=environ)
    try:
        yield pid
    finally:
        processes.kill(HERE, str(paths.folder))


def _wait(paths: RunPaths, script: int, clock: Clock) -> None:
    while os.waitpid(script, os.WNOHANG) == (0, 0):
        if paths.progress.exists():
            clock.done("training")
        time.sleep(_POLL_S)


def _verdict(rehearsal: Rehearsal, paths: RunPaths, clock: Clock) -> Verdict:
    state = attempts.state(paths) or states.LOST
    files = rehearsal.rendered.files.items()
    same_bytes = all((paths.folder / name).read_bytes() == file.content for name, file in files)
    update = progress.read(paths).update
    return Verdict(
        passed=state == states.COMPLETED and same_bytes,
        outcome=_outcome(paths, state, update),
        expected=_EXPECTED,
        state=state,
        attempts=1,
        update=update,
        same_bytes=same_bytes,
        seconds=clock.steps,
        folder=paths.folder,
    )


def _outcome(paths: RunPaths, state: str, update: int | None) -> str:
    if state == states.COMPLETED:
        return f"{state} after {update} updates" if update else state
    failed = failure.read(paths)
    if failed is not None:
        return "\n  | ".join([f"{state}: rank {failed.rank} failed first, exit code {failed.exit_code}:", *failed.tail])
    return "\n  | ".join([f"{state}. The job script's last lines:", *failure.tail_of_attempt(paths.scheduler_log)])
