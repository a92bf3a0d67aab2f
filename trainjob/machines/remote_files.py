"""Reads small files, new lines of logs and paths of folders on a machine, many of them in one call; writes a word."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainjob.contract import package
from trainjob.contract.errors import UserError
from trainjob.machines import process
from trainjob.machines.machine import Machine

# The most of one log in one call; the next call brings the rest.
MOST_BYTES = 16 << 20
_TRIES = 3
# Exit codes of resolve_folder.sh.
_UNUSABLE = {
    40: ("{0} is not a folder", "Set runs_dir to a folder"),
    41: (
        "you have no permission to write in {0}",
        "Set runs_dir to a folder that you may write, on storage that all nodes share",
    ),
    42: ("it is not an absolute path", "Write it with a leading / or ~/"),
}


@dataclass(frozen=True)
class Grown:
    """The bytes of a file from `offset` on; 0 if the file has become shorter, so that it is read from its start."""

    offset: int
    content: bytes


def present(machine: Machine, paths: Sequence[str]) -> dict[str, bytes]:
    """Return the content of the files that exist, in one call; no bytes for a folder. Raises UserError."""
    if not paths:
        return {}
    # Each name once: tar would write the second as a link to the first.
    lines = _lines(list(dict.fromkeys(paths)))
    for _ in range(_TRIES):
        ended = machine.run(package.program_command(__file__, "present_files"), stdin=lines, check=False)
        # tar complains if a file is replaced between the test and the copy: try again.
        if ended.code == 0:
            break
    else:
        process.refuse_failure(ended)
    import tarfile

    with tarfile.open(fileobj=io.BytesIO(ended.stdout), mode="r:") as archive:
        members = [(member, archive.extractfile(member)) for member in archive]
        return {member.name: b"" if stream is None else stream.read() for member, stream in members}


def _lines(lines: Sequence[str]) -> bytes:
    if any("\n" in line for line in lines):
        raise UserError("a path with a line break can't be read on another machine", "rename its folder")
    return "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape")


def grown(machine: Machine, offsets: Mapping[str, int], most_bytes: int = MOST_BYTES) -> dict[str, Grown]:
    """Return the bytes of each file beyond its offset, in one call; no entry if there are none. Raises UserError."""
    if not offsets:
        return {}
    lines = _lines([f"{offset} {path}" for path, offset in offsets.items()])
    ended = machine.run(package.program_command(__file__, "grown_files", str(most_bytes)), stdin=lines)
    additions: dict[str, Grown] = {}
    stream = io.BytesIO(ended.stdout)
    while head := stream.readline():
        offset, size, path = head.decode(errors="surrogateescape").rstrip("\n").split(" ", 2)
        additions[path] = Grown(int(offset), stream.read(int(size)))
    return additions


def write_word(machine: Machine, path: str, word: str) -> None:
    """Write a file of one line, at once, into a folder that need not exist. Raises UserError."""
    machine.run(package.program_command(__file__, "write_word", path, word))


def resolved_runs_dir(machine: Machine, runs_dir: str) -> str:
    """Return the absolute path of `runs_dir` on the machine; which need not exist yet. Raises UserError."""
    ended = machine.run(package.program_command(__file__, "resolve_folder", runs_dir), check=False)
    if ended.code == 0:
        return ended.text.rstrip("\n")
    what, cure = _UNUSABLE.get(ended.code, (ended.stderr.strip() or "it can't be read", ""))
    raise UserError(f"runs_dir {runs_dir} on {machine.name}: {what.format(ended.text.strip())}", cure)
