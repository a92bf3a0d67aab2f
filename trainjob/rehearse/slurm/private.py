"""A private Slurm: daemons in namespaces that end with this process, however it ends."""

from __future__ import annotations

import dataclasses
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainjob.contract.errors import UserError
from trainjob.machines import process
from trainjob.machines.process import Completed, Kept
from trainjob.rehearse.slurm import configuration, folders, releases, root
from trainjob.rehearse.slurm.description import Description

_INSIDE = Path(__file__).with_name("inside.sh")
_READY_WITHIN_S = 60.0
_READY_PER_NODE_S = 0.5
_POLL_S = 0.02
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

        Of the environment it has what `sudo` leaves and `environment`. Raises CommandError.
        """
        ours = root.as_ourselves(self._placed(arguments, folder, {**root.our_environment(), **(environment or {})}))
        return self._run(ours, arguments, timeout_s, check=check)

    def run_as_root(self, arguments: Sequence[str], *, check: bool = True) -> Completed:
        """Return the result of a command run as root: the administrator's commands, and those that inject faults."""
        return self._run(self._placed(arguments, None, {}), arguments, 60.0, check=check)

    def _run(self, whole: Sequence[str], arguments: Sequence[str], timeout_s: float, *, check: bool) -> Completed:
        ended = process.run(self._entered(whole), timeout_s=timeout_s, check=False)
        # An error shows the command, not how it got into the namespaces.
        ended = dataclasses.replace(ended, arguments=tuple(arguments))
        if check:
            process.refuse_failure(ended)
        return ended

    def _entered(self, arguments: Sequence[str]) -> list[str]:
        return root.in_namespaces_of(self.first_process, arguments)

    def _placed(self, arguments: Sequence[str], folder: Path | None, environment: Mapping[str, str]) -> list[str]:
        # As arguments: sudo drops the environment, and entering a mount namespace changes the folder.
        chosen = {"SLURM_CONF": str(self.folder / "slurm.conf"), **environment}
        pairs = [f"{name}={value}" for name, value in chosen.items()]
        return ["env", f"--chdir={folder or '/'}", *pairs, *arguments]

    @contextmanager
    def beside(self, script: Path, *arguments: str, log: Path) -> Iterator[Kept]:
        """Run a shell script as root while this lasts; it ends when its input does."""
        kept = process.keep(self._entered(["sh", str(script), *arguments]), log=log)
        try:
            yield kept
        finally:
            kept.end()

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
        logs = ["find", str(self.folder / configuration.PRIVATE), "-name", "*.log"]
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
    folders.remove_leftovers()
    with folders.new_folder() as folder:
        _write(description, folder, release_root)
        words = ["sh", str(_INSIDE), str(folder), *description.nodes_at_work]
        kept = process.keep(root.in_new_namespaces(words), log=folder / "log")
        try:
            slurm = PrivateSlurm(description, folder, _first_process(kept, folder, len(description.nodes_at_work)))
            _wait_until_idle(slurm)
            yield slurm
        finally:
            kept.end()


def _write(description: Description, folder: Path, release_root: Path | None) -> None:
    for name in (configuration.PRIVATE, *configuration.MOUNTED):
        (folder / name).mkdir()
    installed = root.installed_release() or "0"
    for name, text in configuration.files(description, folder, release_root, installed).items():
        (folder / name).write_text(text)
    for name, source in configuration.PROGRAMS.items():
        _write_program(folder / name, source)
    key = folder / "key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))


def _write_program(path: Path, source: str) -> None:
    path.parent.mkdir(exist_ok=True)
    shutil.copyfile(_INSIDE.with_name(source), path)
    path.chmod(0o755)


def _first_process(kept: Kept, folder: Path, nodes: int) -> int:
    """Return the first process of the new namespaces, when all daemons have been started."""
    deadline = time.monotonic() + _READY_WITHIN_S + nodes * _READY_PER_NODE_S
    while not (folder / "started").exists():
        if kept.has_ended or time.monotonic() > deadline:
            log = (folder / "log").read_text(errors="replace").strip()
            raise UserError(f"the private Slurm can't be started. Its log:\n{log}\n", _CURE)
        time.sleep(_POLL_S)
    return _first_inside(kept.pid)


def _first_inside(pid: int) -> int:
    # Below sudo and unshare: the process that is number 1 in its own namespace.
    while len(_numbers(pid)) == len(_numbers(os.getpid())) or _numbers(pid)[-1] != 1:
        pid = _child(pid)
    return pid


def _numbers(pid: int) -> list[int]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return [int(word) for line in lines if line.startswith("NSpid:") for word in line.split()[1:]]


def _child(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    if not children:
        raise UserError("the private Slurm ended while it was starting", _CURE)
    return int(children[0])


def _wait_until_idle(slurm: PrivateSlurm) -> None:
    expected = len(slurm.description.nodes_at_work)
    limit_s = _READY_WITHIN_S + expected * _READY_PER_NODE_S
    deadline = time.monotonic() + limit_s
    while (idle := _idle_nodes(slurm)) < expected:
        if time.monotonic() > deadline:
            raise UserError(
                f"{idle} of {expected} nodes of the private Slurm came up within {limit_s:g} s. "
                f"The last lines of its logs:\n{slurm.logs()}\n",
                _CURE,
            )
        # Looking takes CPU time that the daemons of many nodes need.
        time.sleep(_POLL_S * max(1, expected // 8))


def _idle_nodes(slurm: PrivateSlurm) -> int:
    reply = slurm.run(["sinfo", "--noheader", "--Node", "--format=%N %T"], check=False)
    return len({line.split()[0] for line in reply.text.splitlines() if line.endswith(" idle")})
