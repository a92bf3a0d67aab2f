"""The input of a rehearsal of any kind of cluster, and the verdict that it returns."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainjob.backends.project import Project, Selection
from trainjob.cluster.base import Cluster
from trainjob.contract.environment import set_redirects
from trainjob.kinds.lookup import find
from trainjob.observe import index
from trainjob.render.rendered import Rendered
from trainjob.render.request import Request
from trainjob.requests.prepared import Prepared, data_dir

_PYTHON = re.compile(r"python[0-9.]*")
INSTALLED = "installed"
INJECTIONS = ("timeout", "preempt", "node-failure", "rank-death", "cancel")


@dataclass(frozen=True)
class Rehearsal:
    """What to rehearse: exactly the files that a submission would write, and the variables that a rehearsal sets."""

    request: Request
    rendered: Rendered
    project: Project | None
    selection: Selection | None
    folder: Path  # the run directory, which is created
    redirects: Mapping[str, str]
    inject: str | None  # of INJECTIONS
    say: Callable[[str], None]
    show: Callable[[bytes], None] | None = None  # takes what ranks print, line by line, with the rank in front
    has_gpus: bool = False  # stand-in GPUs: ranks compute on `cuda` devices; without them, on the CPU
    slurm: str = INSTALLED  # the release of Slurm, if the cluster has one
    launch_only: bool = False  # launchers start on all nodes, and no ranks


def rehearsal(
    prepared: Prepared,
    *,
    updates: int | None = None,
    inject: str | None = None,
    say: Callable[[str], None] = lambda _line: None,
    show: Callable[[bytes], None] | None = None,
    folder: Path | None = None,
    redirected: Mapping[str, str] | None = None,
    has_gpus: bool = False,
    slurm: str = INSTALLED,
    launch_only: bool = False,
) -> Rehearsal:
    """Return the rehearsal of a prepared request, which ends after `updates` if given.

    Its run directory is created in `folder`; `redirected` adds variables to those that every rehearsal sets.
    """
    cluster, local = prepared.named_cluster.cluster, find("local")
    command = prepared.request.job.command or ()
    changed = {**redirects(cluster, os.environ, updates, data_dir(local), command), **(redirected or {})}
    if launch_only:
        changed["TRAINJOB_LAUNCH_ONLY"] = "1"
    if (has_gpus or launch_only) and "TRAINJOB_DEVICE" not in os.environ:
        del changed["TRAINJOB_DEVICE"]
    return Rehearsal(
        request=prepared.request,
        rendered=prepared.render(),
        project=prepared.project,
        selection=prepared.selection,
        folder=(folder or index.home() / "rehearsals") / index.new_id(prepared.request.plan.name),
        redirects=changed,
        inject=inject,
        say=say,
        show=show,
        has_gpus=has_gpus,
        slurm=slurm,
        launch_only=launch_only,
    )


@dataclass(frozen=True)
class Launch:
    """How launchers started on a number of nodes, compared with jobs of the same size whose srun does nothing."""

    nodes: int
    ranks: int
    bare_s: float  # from sbatch until `srun true` had ended
    python_s: float  # from sbatch until srun of a Python that does nothing had ended
    launch_s: float  # from sbatch until the launchers of all nodes had met
    launcher_cpu_s: float  # CPU time of one launcher until then
    connections: int  # that the first node accepted
    # On the run directory: by the first node, which runs the job script as well, and by the last. None: not counted.
    first_operations: int | None
    last_operations: int | None
    last_on_code: int | None  # those of the last node that load the runtime


@dataclass(frozen=True)
class Verdict:
    """How the rehearsal ended, and whether it ended as it should."""

    passed: bool
    outcome: str
    expected: str
    state: str
    attempts: int
    update: int | None
    same_bytes: bool  # whether what ran is what was rendered
    seconds: Mapping[str, float]  # from the start to the end of each step, in order
    folder: Path
    gpus: Sequence[str] = ()  # what ranks did with stand-in GPUs, line by line
    launches: Sequence[Launch] = ()  # if only launchers were started: by number of nodes

    def as_json(self) -> dict[str, Any]:
        """Return the verdict for `--json`."""
        changed = {"seconds": dict(self.seconds), "gpus": list(self.gpus), "folder": str(self.folder)}
        return {**vars(self), **changed, "launches": [vars(one) for one in self.launches]}


@dataclass
class Clock:
    """Seconds from the start of the rehearsal at which each step ended."""

    began: float = field(default_factory=time.monotonic)
    steps: dict[str, float] = field(default_factory=dict)

    def done(self, step: str) -> None:
        """Record when `step` ended; only the first call for a step counts."""
        self.steps.setdefault(step, round(time.monotonic() - self.began, 2))


def redirects(
    cluster: Cluster,
    environ: Mapping[str, str],
    updates: int | None,
    data_dir: Path | None,
    command: Sequence[str] = (),
) -> dict[str, str]:
    """Return the variables, read by job scripts with a default, that a rehearsal sets; the user's own values win.

    `updates` None rehearses the whole job; `command` is the user's own, which runs what the user's PATH names.
    """
    ours = {
        "TRAINJOB_PYTHON": python_of(cluster, command),
        "TRAINJOB_PROLOGUE": "skip",
        "TRAINJOB_DEVICE": "cpu",
        "TRAINJOB_CONTAINER": "none",
    }
    if data_dir is not None:
        ours["TRAINJOB_DATA_DIR"] = str(data_dir)
    if cluster.network.interface:
        ours["TRAINJOB_INTERFACE"] = "lo"
    if updates is not None:
        ours["TRAINJOB_MAX_UPDATES"] = str(updates)
    return {**ours, **set_redirects(environ)}


def python_of(cluster: Cluster, command: Sequence[str] = ()) -> str:
    """Return the interpreter of a rehearsal: the cluster file's, where it exists on this machine.

    Otherwise it is what PATH names for a user's own `command`, and for a task our own, unless that has no torch.
    """
    named = os.path.expanduser(cluster.interpreter or "")
    if os.path.isabs(named) and os.access(named, os.X_OK):
        return named
    if not command and importlib.util.find_spec("torch") is not None:
        return sys.executable
    word = next((word for word in command if _PYTHON.fullmatch(word)), "python3")
    return shutil.which(word) or sys.executable
