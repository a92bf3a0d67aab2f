"""A private Slurm: daemons in namespaces that end with this process, however it ends."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainjob.contract import clock
from trainjob.contract.errors import UserError
from trainjob.machines import process
from trainjob.machines.process import Completed
from trainjob.records.own import is_own_folder, open_own
from trainjob.rehearse.slurm import configuration, releases, root
from trainjob.rehearse.slurm.description import Description

_INSIDE = Path(__file__).with_name("inside.sh")
READY_WITHIN_S = 60.0
_READY_PER_NODE_S = 0.5
_POLL_S = 0.02
_PREFIX = "trainjob-slurm-"
_LOCK = "lock"
_CURE = "Correct what the log names, take fewer nodes, or rehearse on a machine that is less busy"


@dataclass(frozen=True)
class PrivateSlurm:
    """A running Slurm. Commands see its controller and nodes, our files, and no other network."""

    description: Description
    folder: Path
    first_process: int  # of the namespaces, as seen from outside

    def run(
        self,
        arguments: Sequence[str],
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
        check: bool = True,
    ) -> Completed:
        """Return what a command left that ran on its login node, as us, in `folder`.

        Of the environment it has what a login sets, and `environment`. Raises CommandError.
        """
        environ = {**root.our_environment(), **(environment or {})}
        return self._run(arguments, folder, environ, timeout_s, check=check, is_root=False)

    def run_as_root(self, arguments: Sequence[str], *, timeout_s: float = 60.0, check: bool = True) -> Completed:
        """Return the result of a command run as root: the administrator's commands, and those that inject faults."""
        return self._run(arguments, None, {}, timeout_s, check=check, is_root=True)

    def _run(
        self,
        arguments: Sequence[str],
        folder: Path | None,
        environment: Mapping[str, str],
        timeout_s: float,
        *,
        check: bool,
        is_root: bool,
    ) -> Completed:
        # As arguments: sudo drops the environment, and entering a mount namespace changes the folder.
        chosen = {"SLURM_CONF": str(self.folder / "slurm.conf"), **environment}
        pairs = [f"{name}={value}" for name, value in chosen.items()]
        placed = ["env", f"--chdir={folder or '/'}", *pairs, *arguments]
        whole = root.in_namespaces_of(self.first_process, placed if is_root else root.as_ourselves(placed))
        # An error shows the command, not how it got into the namespaces.
        # Jobs can read what the processes beside them were started with.
        ended = process.run(whole, timeout_s=timeout_s, environment=root.our_environment(), check=False)
        ended = ended._replace(arguments=tuple(arguments))
        if check:
            process.refuse_failure(ended)
        return ended

    def idle_nodes(self) -> set[str]:
        """Return the nodes that are ready for jobs."""
        reply = self.run(["sinfo", "--noheader", "--Node", "--format=%N %T"], check=False)
        return {line.split()[0] for line in reply.text.splitlines() if line.endswith(" idle")}

    def set_job_environment(self, environment: Mapping[str, str]) -> None:
        """Make Slurm's TaskProlog set variables for the scripts and steps of all jobs that start from now on.

        Raises UserError for a value of several lines.
        """
        several = [name for name, value in environment.items() if "\n" in value]
        if several:
            raise UserError(
                f"{several[0]} has a value of several lines, which a rehearsal cannot hand to a job",
                "Give it one line, or unset it",
            )
        lines = [f"export {name}={value}\n" for name, value in environment.items()]
        (self.folder / configuration.JOB_ENVIRONMENT).write_text("".join(lines))

    def logs(self) -> str:
        """Return the last lines of all daemons' logs."""
        # Below are the nodes' disks, with copies of homes and projects.
        logs = ["find", str(self.folder / configuration.PRIVATE), "-maxdepth", "1", "-name", "*.log"]
        return self.run_as_root([*logs, "-exec", "tail", "--verbose", "--lines=25", "{}", "+"], check=False).text


@contextmanager
def private_slurm(description: Description, say: Callable[[str], None] = lambda _line: None) -> Iterator[PrivateSlurm]:
    """Yield a Slurm that is ready for jobs; every process and file of it is gone afterwards.

    Raises UserError when packages or rights are missing, or with its logs when it does not come up. `say` hears of
    another release's root file system that must be made first.
    """
    root.refuse_where_it_cannot_run(description)
    release = description.release
    release_root = releases.root_of(release, accounting=description.accounting, say=say) if release else None
    nodes = len(description.nodes_at_work)
    limit_s = READY_WITHIN_S + nodes * _READY_PER_NODE_S
    remove_leftovers()
    with new_folder() as folder:
        _write(description, folder, release_root)
        words = ["sh", str(_INSIDE), str(folder), *description.nodes_at_work]
        kept = process.keep(root.in_new_namespaces(words), log=folder / "log", environment=root.our_environment())
        try:
            deadline = clock.monotonic() + limit_s
            while not (folder / "started").exists():
                if kept.has_ended or clock.monotonic() > deadline:
                    log = (folder / "log").read_text(errors="replace").strip()
                    raise UserError(f"the private Slurm can't be started. Its log:\n{log}\n", _CURE)
                clock.sleep(_POLL_S)
            slurm = PrivateSlurm(description, folder, _first_inside(kept.pid))
            deadline = clock.monotonic() + limit_s
            while (idle := len(slurm.idle_nodes())) < nodes:
                if clock.monotonic() > deadline:
                    raise UserError(
                        f"{idle} of {nodes} nodes of the private Slurm came up within {limit_s:g} s. "
                        f"The last lines of its logs:\n{slurm.logs()}\n",
                        _CURE,
                    )
                # Looking takes CPU time that the daemons of many nodes need.
                clock.sleep(_POLL_S * max(1, nodes // 8))
            yield slurm
        finally:
            kept.end()


def _write(description: Description, folder: Path, release_root: Path | None) -> None:
    """Write the files of a private Slurm into its folder."""
    for name in (configuration.PRIVATE, *configuration.MOUNTED):
        (folder / name).mkdir()
    installed = root.installed_release() or "0"
    for name, text in configuration.files(description, folder, release_root, installed).items():
        (folder / name).write_text(text)
    for name, source in configuration.PROGRAMS.items():
        shutil.copyfile(_INSIDE.with_name(source), folder / name)
        (folder / name).chmod(0o755)
    key = folder / "key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))


def _first_inside(pid: int) -> int:
    """Return the process, below sudo and unshare, that is number 1 in its own namespace."""
    levels = 0
    while True:
        status = Path(f"/proc/{pid}/status").read_text()
        numbers = next(line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:"))
        if levels and len(numbers) > levels and numbers[-1] == "1":
            return pid
        levels = levels or len(numbers)
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if not children:
            raise UserError("the private Slurm ended while it was starting", _CURE)
        pid = int(children[0])


# -- its folder, which is locked while its owner lives, so that the next call recognizes leftovers


@contextmanager
def new_folder() -> Iterator[Path]:
    """Yield a new folder that others may read and only we write; it is gone afterwards."""
    # Not in the user's cache: a socket's path may have 107 bytes, and the user munge must be able to enter.
    made = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}"))
    folder = made.with_name(made.name[1:])
    try:
        made.chmod(0o755)
        with (made / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # It gets its name only once it is locked.
            made.rename(folder)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers() -> list[Path]:
    """Remove the folders whose owners were killed, and return them. Their processes ended with the owners."""
    left = []
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if not is_own_folder(folder):
            continue
        try:
            with os.fdopen(open_own(folder / _LOCK, os.O_RDONLY)) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # locked by its owner
            continue
        shutil.rmtree(folder, ignore_errors=True)
        left.append(folder)
    return left
