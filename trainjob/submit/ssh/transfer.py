"""A folder over ssh: by rsync, or by tar where one end has none. Half of one lies under another name."""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Protocol

from trainjob.contract.errors import UserError
from trainjob.submit.machine import Machine
from trainjob.submit.process import Completed

# A project may have 500 MB, and a checkpoint more.
TRANSFER_S = 4 * 3600.0
_SILENCE_S = 300
_TAKEN = 17
_FULL = re.compile(r"quota exceeded|no space left", re.IGNORECASE)
_CUT = 255
# rsync: 1 and 2 are options or a protocol that one end does not know; 127 is the shell's word for no rsync.
_NO_RSYNC = (1, 2, 4, 127)

# Says whether rsync is there, then the size and name of each file that an earlier, cut sending has left.
_BEGIN = """
if [ -e "$2" ]; then exit 17; fi
mkdir -p "$1" && cd "$1" || exit 1
command -v rsync || echo none
find . -type f -exec wc -c {} +
"""
_FINISH = 'if [ -e "$2" ]; then exit 17; fi; mv "$1" "$2"'


class OverSsh(Machine, Protocol):
    """A machine that rsync reaches, too."""

    def rsync(self, arguments: Sequence[str], *, timeout_s: float) -> Completed:
        """Return what rsync left."""

    def failure(self, ended: Completed) -> UserError:
        """Return what the words of an ssh that has failed mean."""


def send(machine: OverSsh, source: Path, target: str) -> None:
    """Copy `source` to `target` on the machine: whole, or under another name until the next call. Raises UserError."""
    part = posixpath.join(posixpath.dirname(target), f".{posixpath.basename(target)}.part")
    rsync, *there = _sh(machine, _BEGIN, part, target).text.splitlines()
    if rsync == "none" or not _by_rsync(machine, f"{source}/", f"{machine.name}:{part}/"):
        _send_tar(machine, source, part, frozenset(line.strip() for line in there))
    _sh(machine, _FINISH, part, target)


def receive(machine: OverSsh, source: str, target: Path) -> None:
    """Copy `source` of the machine to the new folder `target`. Raises UserError."""
    if os.path.lexists(target):
        raise UserError(f"{target} is there already: choose another one")
    staging = target.with_name(f".{target.name}.part")
    staging.mkdir(parents=True, exist_ok=True)
    if not _by_rsync(machine, f"{machine.name}:{source}/", f"{staging}/"):
        _receive_tar(machine, source, staging)
    staging.replace(target)


def _sh(machine: Machine, text: str, *words: str) -> Completed:
    ended = machine.run(["sh", "-c", text, "sh", *words], check=False)
    if ended.code == _TAKEN:
        raise UserError(f"{words[-1]} on {machine.name} is there already: choose another one")
    return _sound(machine, ended)


def _sound(machine: Machine, ended: Completed) -> Completed:
    if ended.code == 0:
        return ended
    if "is your shell clean" in ended.stderr:
        raise _greeting(machine)
    if _FULL.search(ended.stderr):
        raise UserError(
            f"no space is left for you on {machine.name} ({ended.stderr.strip().splitlines()[0]}): free some "
            "(`trainjob prune`, or by hand), or set runs_dir to another file system"
        )
    raise UserError(f"{machine.name}: {ended.stderr.strip() or f'exit code {ended.code}'}")


def _by_rsync(machine: OverSsh, source: str, target: str) -> bool:
    """Return whether rsync could do it; False where an end has none that fits."""
    if shutil.which("rsync") is None:
        return False
    # --protect-args: no shell over there reads the path. --checksum: times say little of files made this second.
    asked = ["-rlpt", "--partial", f"--timeout={_SILENCE_S}", "--checksum", "--protect-args", source, target]
    ended = machine.rsync(asked, timeout_s=TRANSFER_S)
    if ended.code in _NO_RSYNC or "command not found" in ended.stderr or "rsync: not found" in ended.stderr:
        return False
    if not _FULL.search(ended.stderr) and (ended.code == _CUT or "unexpectedly closed" in ended.stderr):
        raise machine.failure(ended)
    _sound(machine, ended)
    return True


def _send_tar(machine: Machine, source: Path, part: str, there: frozenset[str]) -> None:
    with tempfile.TemporaryFile() as stream:
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for name in _missing(source, there):
                archive.add(source / name, arcname=f"./{name}", recursive=False, filter=_nobodys)
        stream.seek(0)
        words = ["tar", "-xf", "-", "-C", part]
        _sound(machine, machine.run(words, stdin=stream, timeout_s=TRANSFER_S, check=False))


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _missing(source: Path, there: frozenset[str]) -> Iterator[str]:
    for folder, folders, names in os.walk(source):
        for name in sorted([*folders, *names]):
            path = Path(folder, name)
            relative = os.path.relpath(path, source)
            # What lies at the top may have been rendered anew since; the rest never changes.
            is_there = f"{path.lstat().st_size} ./{relative}" in there and os.sep in relative
            if path.is_symlink() or path.is_dir() or not is_there:
                yield relative


def _receive_tar(machine: Machine, source: str, staging: Path) -> None:
    with tempfile.TemporaryFile() as stream:
        words = ["tar", "-cf", "-", "-C", source, "."]
        _sound(machine, machine.run(words, stdout=stream, timeout_s=TRANSFER_S, check=False))
        stream.seek(0)
        try:
            _extract(stream, staging)
        except tarfile.ReadError:
            raise _greeting(machine) from None


def _extract(stream: IO[bytes], staging: Path) -> None:
    with tarfile.open(fileobj=stream, mode="r:") as archive:
        archive.extractall(staging, filter="data")


def _greeting(machine: Machine) -> UserError:
    return UserError(
        f"{machine.name} prints text of its own into what is copied: let ~/.bashrc over there, or whatever its shell "
        "starts with, print nothing when no terminal is there"
    )
