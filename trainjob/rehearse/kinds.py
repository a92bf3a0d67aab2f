"""Chooses the module that rehearses a kind of cluster."""

from __future__ import annotations

import contextlib
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from trainjob.check import checks
from trainjob.check.context import Context
from trainjob.contract import package
from trainjob.contract.errors import ProblemsError, UserError
from trainjob.contract.paths import RunPaths
from trainjob.machines.access import HERE
from trainjob.observe import logs
from trainjob.observe.told_once import ToldOnce
from trainjob.records import attempts
from trainjob.rehearse import pod
from trainjob.rehearse.base import INSTALLED, Rehearsal, RehearsalVerdict, progress_of
from trainjob.rehearse.slurm import rehearsal as slurm
from trainjob.rehearse.slurm import releases

_POLL_S = 0.1
# c10d asks for the name of the address that a stand-in node has, and it has none. The ranks' logs keep the line.
_OF_THIS_MACHINE = re.compile(rb"\[c10d\] The hostname of the client socket cannot be retrieved")

# A new kind is a new row.
KINDS: dict[str, Callable[[Rehearsal], RehearsalVerdict]] = {"slurm": slurm.rehearse, "ipu-pod": pod.rehearse}


def rehearse(rehearsal: Rehearsal) -> RehearsalVerdict:
    """Return how the job ended. Raises UserError for a kind of cluster that can't be rehearsed."""
    cluster, name = rehearsal.request.cluster, rehearsal.request.plan.cluster
    kind = "slurm" if cluster.hosts_are_given else cluster.kind  # a run inside an allocation is one of Slurm's
    if kind not in KINDS:
        if cluster.trains_here:
            raise UserError(f"cluster {name} is this machine", f"its own rehearsal is trainjob submit --cluster {name}")
        raise UserError(
            f"cluster {name} is of kind {cluster.kind}", f"the kinds that can be rehearsed are {', '.join(KINDS)}"
        )
    if rehearsal.slurm != INSTALLED:
        if not cluster.hosts_are_given:
            raise UserError(
                f"--slurm {rehearsal.slurm} is for Slurm clusters, and this one is of kind {cluster.kind}",
                "Leave it out",
            )
        releases.refuse_unknown(rehearsal.slurm)
    _refuse_script(rehearsal)
    if data_dir := rehearsal.redirects.get("TRAINJOB_DATA_DIR"):
        # The folder exists only once a data set has been prepared, and the node check refuses a node without it.
        with contextlib.suppress(OSError):
            Path(data_dir).mkdir(parents=True, exist_ok=True)
    with output_shown(rehearsal):
        return KINDS[kind](rehearsal)


def _refuse_script(rehearsal: Rehearsal) -> None:
    """Raise ProblemsError for a script that can't run here: a rehearsal would show the same half a minute later."""
    if rehearsal.project is None:
        return
    context = Context(rehearsal.request, rehearsal.project, rehearsal.selection, HERE)
    # Stand-in GPUs bring a torch, and an SDK's stand-ins its modules.
    brought = ("torch", *(one.name for one in (package.companion("standins") / "ipu").iterdir()))
    found = checks.of_rehearsal(context, rehearsal.redirects["TRAINJOB_PYTHON"], brought)
    if found:
        raise ProblemsError.of_all(found, "; ")
    for problem in checks.warnings_of_rehearsal(context):
        rehearsal.say(f"warning: {problem.text}. {problem.cure}")


def progress(rehearsal: Rehearsal) -> str:
    """Return in a few words how far a rehearsal in another thread has come."""
    paths = RunPaths(rehearsal.folder)
    if rehearsal.request.elements:
        each = (attempts.state(paths.of_element(number)) or "PENDING" for number in rehearsal.request.elements)
        return "array elements: " + ", ".join(f"{count} {state}" for state, count in sorted(Counter(each).items()))
    attempt = attempts.current(paths)
    if rehearsal.has_gpus and not paths.job.exists():
        return "stand-in GPUs are being made ready"
    if not attempt:
        return "the job has not started yet"
    update = progress_of(paths).update
    state = attempts.state(paths) or "PENDING"
    return f"attempt {attempt} is {state}" + ("" if update is None else f", update {update}")


@contextlib.contextmanager
def output_shown(rehearsal: Rehearsal) -> Iterator[None]:
    """While this lasts, show the ranks' output as it is printed; show the rest of it at the end."""
    show, paths, over = rehearsal.show, RunPaths(rehearsal.folder), threading.Event()
    if show is None:
        yield
        return

    def copy() -> None:
        once = ToldOnce(paths, _OF_THIS_MACHINE)
        for piece in once.new(logs.follow(paths, None, over.is_set, lambda: over.wait(_POLL_S))):
            show(piece)
        for line in once.finish():
            show(line)

    reader = threading.Thread(target=copy, name="rehearsal-output", daemon=True)
    reader.start()
    try:
        yield
    finally:
        over.set()
        reader.join()
