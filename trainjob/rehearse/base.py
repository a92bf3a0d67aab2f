"""The input of a rehearsal of any kind of cluster, and the verdict that it returns."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainjob.backends import folder
from trainjob.backends.project import Project, Selection
from trainjob.cluster.base import Cluster
from trainjob.contract import clock
from trainjob.contract.environment import set_redirects
from trainjob.contract.paths import RunPaths, home, with_home
from trainjob.kinds.lookup import find
from trainjob.observe import index
from trainjob.records import attempts, causes, failure, progress
from trainjob.records.progress import ProgressRecord
from trainjob.render.rendered import Rendered
from trainjob.render.request import Request
from trainjob.requests.prepared import Prepared, data_dir

_PYTHON = re.compile(r"python[0-9.]*")
INSTALLED = "installed"
# What every rehearsal expects in which nothing is injected.
COMPLETED = "the job is COMPLETED"


@dataclass(frozen=True)
class Rehearsal:
    """A rehearsal to make: exactly the files that a submission would write, and the variables that a rehearsal sets."""

    request: Request
    rendered: Rendered
    project: Project | None
    selection: Selection | None
    folder: Path  # the run directory, which is created
    redirects: Mapping[str, str]
    inject: str | None  # timeout, preempt, node-failure, rank-death or cancel
    say: Callable[[str], None]
    show: Callable[[bytes], None] | None = None  # takes what ranks print, line by line, with the rank in front
    has_gpus: bool = False  # stand-in GPUs: ranks compute on `cuda` devices; without them, on the CPU
    slurm: str = INSTALLED  # the release of Slurm, if the cluster has one

    def create(self) -> RunPaths:
        """Return the run directory, filled."""
        project = self.project if self.selection is not None else None
        return folder.create(self.folder, self.rendered, project, self.selection)

    def has_rendered_files(self, paths: RunPaths) -> bool:
        """Return whether the files of the run directory are byte for byte as rendered."""
        files = self.rendered.files.items()
        return all((paths.folder / name).read_bytes() == file.content for name, file in files)


def rehearsal(
    prepared: Prepared,
    *,
    updates: int | None = None,
    inject: str | None = None,
    say: Callable[[str], None] = lambda _line: None,
    show: Callable[[bytes], None] | None = None,
    into: Path | None = None,
    redirected: Mapping[str, str] | None = None,
    has_gpus: bool = False,
    slurm: str = INSTALLED,
) -> Rehearsal:
    """Return the rehearsal of a prepared request, which ends after `updates` if given.

    Its run directory is created in the folder `into`; `redirected` adds variables to those that every rehearsal sets.
    """
    cluster, local = prepared.named_cluster.cluster, find("local")
    command = prepared.request.job.command or ()
    changed = {**redirects(cluster, os.environ, updates, data_dir(local), command), **(redirected or {})}
    if has_gpus and "TRAINJOB_DEVICE" not in os.environ:
        del changed["TRAINJOB_DEVICE"]
    return Rehearsal(
        request=prepared.request,
        rendered=prepared.render(),
        project=prepared.project,
        selection=prepared.selection,
        folder=(into or home() / "rehearsals") / index.new_id(prepared.request.plan.name),
        redirects=changed,
        inject=inject,
        say=say,
        show=show,
        has_gpus=has_gpus,
        slurm=slurm,
    )


@dataclass(frozen=True)
class RehearsalVerdict:
    """The end of a rehearsal, and whether it is as it should be."""

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

    def as_json(self) -> dict[str, Any]:
        """Return the verdict for `--json`."""
        return {**vars(self), "seconds": dict(self.seconds), "gpus": list(self.gpus), "folder": str(self.folder)}


@dataclass
class Stopwatch:
    """Seconds from the start of the rehearsal at which each step ended."""

    began: float = field(default_factory=clock.monotonic)
    steps: dict[str, float] = field(default_factory=dict)

    def done(self, step: str) -> None:
        """Record when `step` ended; only the first call for a step counts."""
        self.steps.setdefault(step, round(clock.monotonic() - self.began, 2))


def progress_of(paths: RunPaths) -> ProgressRecord:
    """Return the progress of a run's newest attempt; without figures before it has reported any."""
    found = progress.read(paths)
    return found if found.attempt == attempts.current(paths) else ProgressRecord()


def last_output(paths: RunPaths, *, is_shown: bool) -> str:
    """Return what the first rank that failed, or else the job script, printed last; empty if that is nothing.

    With `is_shown` the ranks' output stands above, and how the rank failed and why is told instead.
    """
    failed = failure.read(paths)
    if failed is not None and is_shown:
        cause = causes.of_failure(failed)
        last = f": {failed.last_line}" if failed.last_line else ", and printed nothing"
        how = failed.how + ("" if failed.last_line and failed.last_line in str(cause) else last)
        return how if cause is None else f"{how}\nwhy: {cause}"
    who, lines = "the job script", failure.tail_of_attempt(paths.scheduler_log)
    if failed is not None:
        who, lines = failed.who, failed.tail
    return f"The last lines of {who}:\n  | " + "\n  | ".join(lines[-12:]) if lines else ""


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
    named = str(with_home(cluster.interpreter)) if cluster.interpreter else ""
    if os.path.isabs(named) and os.access(named, os.X_OK):
        return named
    if not command and importlib.util.find_spec("torch") is not None:
        return sys.executable
    word = next((word for word in command if _PYTHON.fullmatch(word)), "python3")
    return shutil.which(word) or sys.executable
