"""A Slurm of one's own: daemons in namespaces that end with us, whatever ends us."""

from __future__ import annotations

import dataclasses
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainjob.contract.errors import UserError
from trainjob.rehearse.slurm import configuration, folders, root
from trainjob.rehearse.slurm.description import Description
from trainjob.submit import process
from trainjob.submit.process import Completed, Kept

_INSIDE = Path(__file__).with_name("inside.sh")
_READY_WITHIN_S = 60.0
_POLL_S = 0.02


@dataclass(frozen=True)
class PrivateSlurm:
    """A Slurm that runs. Commands see its controller and nodes, our files, and no other network."""

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
        """Return what a command left that ran with root's rights: the administrator's, and the faults'."""
        return self._run(self._placed(arguments, None, {}), arguments, 60.0, check=check)

    def _run(self, whole: Sequence[str], asked: Sequence[str], timeout_s: float, *, check: bool) -> Completed:
        ended = process.run(self._entered(whole), timeout_s=timeout_s, check=False)
        # How a command gets inside is nothing a user wants to read in an error.
        ended = dataclasses.replace(ended, arguments=tuple(asked))
        if check:
            process.refuse_failure(ended)
        return ended

    def _entered(self, arguments: Sequence[str]) -> list[str]:
        target = str(self.first_process)
        return root.as_root(["nsenter", "--target", target, "--net", "--mount", "--pid", "--uts", "--", *arguments])

    def _placed(self, arguments: Sequence[str], folder: Path | None, environment: Mapping[str, str]) -> list[str]:
        # By arguments: sudo would take the environment away, and entering a mount namespace the folder.
        chosen = {"SLURM_CONF": str(self.folder / "slurm.conf"), **environment}
        pairs = [f"{name}={value}" for name, value in chosen.items()]
        return ["env", f"--chdir={folder or '/'}", *pairs, *arguments]

    def logs(self) -> str:
        """Return the last lines of all daemons' logs."""
        script = f"tail -n 25 {self.folder / configuration.PRIVATE}/*.log"
        return self.run_as_root(["sh", "-c", script], check=False).text


@contextmanager
def private_slurm(description: Description) -> Iterator[PrivateSlurm]:
    """Yield a Slurm that is ready for jobs; every process and file of it is gone afterwards.

    Raises UserError when packages or rights are missing, or with its logs when it does not come up.
    """
    root.refuse_where_it_cannot_run()
    folders.remove_leftovers()
    with folders.new_folder() as folder:
        _write(description, folder)
        kept = process.keep(_command(description, folder), log=folder / "log")
        try:
            slurm = PrivateSlurm(description, folder, _first_process(kept, folder))
            _wait_until_idle(slurm)
            yield slurm
        finally:
            kept.end()


def _write(description: Description, folder: Path) -> None:
    (folder / configuration.PRIVATE).mkdir()
    (folder / "slurm.conf").write_text(configuration.slurm_conf(description, folder))
    (folder / "gres.conf").write_text(configuration.gres_conf(description, folder))
    (folder / "hosts").write_text(configuration.hosts_file(description))
    key = folder / "key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))


def _command(description: Description, folder: Path) -> list[str]:
    # Without --kill-child the namespaces would outlive an unshare that is killed.
    unshare = ["unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"]
    devices = " ".join(configuration.device_names(description))
    return root.as_root([*unshare, "sh", str(_INSIDE), str(folder), devices, *description.nodes_at_work])


def _first_process(kept: Kept, folder: Path) -> int:
    """Return the first process of the new namespaces, when all daemons have been started."""
    deadline = time.monotonic() + _READY_WITHIN_S
    while not (folder / "started").exists():
        if kept.has_ended or time.monotonic() > deadline:
            said = (folder / "log").read_text(errors="replace").strip()
            raise UserError(f"the private Slurm can't be started. It says:\n{said}")
        time.sleep(_POLL_S)
    return _first_inside(kept.pid)


def _first_inside(pid: int) -> int:
    # Below sudo and unshare: the process that is number 1 in a namespace of its own.
    while len(_numbers(pid)) == len(_numbers(os.getpid())) or _numbers(pid)[-1] != 1:
        pid = _child(pid)
    return pid


def _numbers(pid: int) -> list[int]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return [int(word) for line in lines if line.startswith("NSpid:") for word in line.split()[1:]]


def _child(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    if not children:
        raise UserError("the private Slurm ended while it was starting")
    return int(children[0])


def _wait_until_idle(slurm: PrivateSlurm) -> None:
    expected, deadline = len(slurm.description.nodes_at_work), time.monotonic() + _READY_WITHIN_S
    while (found := _idle_nodes(slurm)) < expected:
        if time.monotonic() > deadline:
            raise UserError(
                f"{found} of {expected} nodes of the private Slurm came up within {_READY_WITHIN_S:g} s. "
                f"Its logs end so:\n{slurm.logs()}"
            )
        time.sleep(_POLL_S)


def _idle_nodes(slurm: PrivateSlurm) -> int:
    asked = slurm.run(["sinfo", "--noheader", "--Node", "--format=%N %T"], check=False)
    return len({line.split()[0] for line in asked.text.splitlines() if line.endswith(" idle")})
