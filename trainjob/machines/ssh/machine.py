"""A machine that ssh reaches: runs commands there, and copies folders by rsync, or by tar if one end lacks rsync."""

from __future__ import annotations

import os
import posixpath
import re
import shlex
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from trainjob.contract import package, quoting
from trainjob.contract.errors import UserError
from trainjob.machines import process
from trainjob.machines.machine import ANSWER_S
from trainjob.machines.process import Completed, TimedOutError
from trainjob.machines.ssh import failures
from trainjob.machines.ssh.connection import SshTarget
from trainjob.machines.ssh.failures import SshError

_MARK = "::trainjob::"


class SshMachine:
    """Fits Machine. The first command opens the connection, which all later ones share."""

    def __init__(self, host: str, user: str | None = None) -> None:
        self.name = host
        self.target = SshTarget(host, user)

    def run(
        self,
        arguments: Sequence[str],
        *,
        folder: str | None = None,
        stdin: bytes | IO[bytes] = b"",
        stdout: IO[bytes] | None = None,
        timeout_s: float = ANSWER_S,
        check: bool = True,
    ) -> Completed:
        """Return the command's result. Raises SshError when the machine can't be reached or the connection is cut."""
        words = self.target.command(remote_text(arguments, folder, _MARK if stdout is None else ""))
        try:
            ended = process.run(words, timeout_s=timeout_s, check=False, stdin=stdin, stdout=stdout)
        except TimedOutError:
            message = f"ssh to {self.name}: `{arguments[0]}` did not answer within {timeout_s:g} s"
            raise SshError("timeout", message, reached=True) from None
        if ended.code == failures.FAILED:
            raise failures.error(self.target, ended.stderr)
        # Errors show the command itself, not how ssh was called.
        # A start-up file of the user's shell may have printed text before the mark.
        greeting, mark, rest = ended.stdout.partition(f"{_MARK}\n".encode())
        completed = Completed(tuple(arguments), ended.code, rest if mark else greeting, ended.stderr)
        if check:
            process.refuse_failure(completed)
        return completed

    def interactive(self, arguments: Sequence[str], *, terminal: bool) -> list[str]:
        """Return the ssh command that runs `arguments`."""
        return self.target.command(remote_text(arguments, None), terminal=terminal)

    def send(self, source: Path, target: str) -> None:
        """Copy `source` to `target` by rsync, or by tar if one end lacks rsync. Raises UserError.

        An incomplete copy has another name, and the next call continues it.
        """
        part = posixpath.join(posixpath.dirname(target), f".{posixpath.basename(target)}.part")
        rsync, *present = _sh(self, "begin_sending", part, target).text.splitlines()
        if rsync == "none" or not _by_rsync(self, f"{source}/", f"{self.name}:{part}/"):
            there = frozenset(line.strip() for line in present)
            with tempfile.TemporaryFile() as stream:
                with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive:
                    # The folder itself keeps its mode, as with rsync.
                    for name in (".", *_missing(source, there)):
                        archive.add(source / name, arcname=f"./{name}", recursive=False, filter=_without_owner)
                stream.seek(0)
                words = ["tar", "-xpf", "-", "-C", part]
                _sound(self, self.run(words, stdin=stream, timeout_s=TRANSFER_S, check=False))
        _sh(self, "finish_sending", part, target)

    def receive(self, source: str, target: Path) -> None:
        """Copy `source` of the machine to the new folder `target`. Raises UserError."""
        if os.path.lexists(target):
            raise UserError(f"{target} already exists", "choose another name")
        staging = target.with_name(f".{target.name}.part")
        staging.mkdir(parents=True, exist_ok=True)
        if not _by_rsync(self, f"{self.name}:{source}/", f"{staging}/"):
            with tempfile.TemporaryFile() as stream:
                words = ["tar", "-cf", "-", "-C", source, "."]
                _sound(self, self.run(words, stdout=stream, timeout_s=TRANSFER_S, check=False))
                stream.seek(0)
                try:
                    with tarfile.open(fileobj=stream, mode="r:") as archive:
                        archive.extractall(staging, filter="data")
                except tarfile.ReadError:
                    raise _greeting(self) from None
        staging.replace(target)


def remote_text(arguments: Sequence[str], folder: str | None, mark: str = "") -> str:
    """Return the text for the user's shell on the machine, which is not always sh: a list of words, each quoted once.

    A line with `mark` is printed first. Raises UserError for text that no argument can hold.
    """
    if not arguments:
        raise UserError("a command needs at least one word", "name a program")
    line = shlex.join(arguments)
    print_mark = f"printf '{mark}\\n'; " if mark else ""
    change_folder = "" if folder is None else f"cd {quoting.path(folder)} && "
    return quoting.for_any_shell(f"{print_mark}{change_folder}exec {line}")


# -- copying folders: an incomplete copy has another name -------------------------------------------------------------

# A project may have 500 MB, and a checkpoint more.
TRANSFER_S = 4 * 3600.0
_SILENCE_S = 300
_TAKEN = 17
_FULL = re.compile(r"quota exceeded|no space left", re.IGNORECASE)
_CUT = 255
# rsync exits with 1, 2 or 4 for options or a protocol that one end does not know; the shell with 127 without rsync.
_NO_RSYNC = (1, 2, 4, 127)


def _sh(machine: SshMachine, program: str, *words: str) -> Completed:
    ended = machine.run(package.program_command(__file__, program, *words), check=False)
    if ended.code == _TAKEN:
        raise UserError(f"{words[-1]} already exists on {machine.name}", "choose another name")
    return _sound(machine, ended)


def _sound(machine: SshMachine, ended: Completed) -> Completed:
    """Return what has ended well. Raises UserError otherwise."""
    if ended.code == 0:
        return ended
    if "is your shell clean" in ended.stderr:
        raise _greeting(machine)
    if _FULL.search(ended.stderr):
        raise UserError(
            f"no space is left for you on {machine.name} ({ended.stderr.strip().splitlines()[0]})",
            "free some (`trainjob prune`, or by hand), or set runs_dir to another file system",
        )
    raise UserError(
        f"{machine.name}: {ended.stderr.strip() or f'exit code {ended.code}'}",
        "see whether you may read and write there",
    )


def _by_rsync(machine: SshMachine, source: str, target: str) -> bool:
    """Return whether rsync has copied it; False if one end has no suitable rsync."""
    if shutil.which("rsync") is None:
        return False
    # --protect-args: no shell on the machine reads the path. --checksum: files of the same second can differ.
    words = ["-rlpt", "--partial", f"--timeout={_SILENCE_S}", "--checksum", "--protect-args", source, target]
    ended = process.run(["rsync", "-e", machine.target.for_rsync, *words], timeout_s=TRANSFER_S, check=False)
    if ended.code in _NO_RSYNC or "command not found" in ended.stderr or "rsync: not found" in ended.stderr:
        return False
    if ended.code not in (0, _CUT) and not ended.stderr.strip():
        # rsync can lose its other end's message, as on a full disk: tar then says why, or copies the folder.
        return False
    if not _FULL.search(ended.stderr) and (ended.code == _CUT or "unexpectedly closed" in ended.stderr):
        raise failures.error(machine.target, ended.stderr)
    _sound(machine, ended)
    return True


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _missing(source: Path, present: frozenset[str]) -> Iterator[str]:
    for folder, folders, names in os.walk(source):
        for name in sorted([*folders, *names]):
            path = Path(folder, name)
            relative = os.path.relpath(path, source)
            # Files at the top may have been rendered again; the others never change.
            is_present = f"{path.lstat().st_size} ./{relative}" in present and os.sep in relative
            if path.is_symlink() or path.is_dir() or not is_present:
                yield relative


def _greeting(machine: SshMachine) -> UserError:
    return UserError(
        f"the shell of {machine.name} prints text into what is copied",
        "let its ~/.bashrc, or whatever else its shell reads at start-up, print nothing without a terminal",
    )
