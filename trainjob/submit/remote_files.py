"""Small files and the new ends of logs, many in one call: what status and logs need of a machine."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainjob.contract.errors import UserError
from trainjob.submit import process
from trainjob.submit.machine import Machine

# `[ -e` costs no process: only what is there is handed to the one tar.
_PRESENT = """
while IFS= read -r path; do
  if [ -e "$path" ]; then printf '%s\\n' "$path"; fi
done | tar -cPf - --no-recursion -T -
"""
# A line in is "offset path"; out comes, for each file that has more, "offset size path" and then its new bytes.
_GROWN = """
while IFS=' ' read -r offset path; do
  [ -f "$path" ] || continue
  size=$(wc -c <"$path")
  size=$((size))
  if [ "$size" -lt "$offset" ]; then offset=0; fi
  if [ "$size" -eq "$offset" ]; then continue; fi
  if [ $((size - offset)) -gt "$1" ]; then size=$((offset + $1)); fi
  printf '%s %s %s\\n' "$offset" "$((size - offset))" "$path"
  tail -c +"$((offset + 1))" "$path" | head -c "$((size - offset))"
done
"""
# What one call brings of one log at most; the next call brings the rest.
MOST_BYTES = 16 << 20
_TRIES = 3


@dataclass(frozen=True)
class Grown:
    """The bytes of a file from `offset` on; 0 where the file has become shorter, so that it is read anew."""

    offset: int
    content: bytes


def present(machine: Machine, paths: Sequence[str]) -> dict[str, bytes]:
    """Return the content of those files that are there, in one call; of a folder, no bytes. Raises UserError."""
    if not paths:
        return {}
    # Each once: tar would write the second as a link to the first.
    words, asked = ["sh", "-c", _PRESENT], _lines(list(dict.fromkeys(paths)))
    for _ in range(_TRIES):
        ended = machine.run(words, stdin=asked, check=False)
        # A file that is moved into place between the look and the copy makes tar complain: look again.
        if ended.code == 0:
            break
    else:
        process.refuse_failure(ended)
    return dict(_members(ended.stdout))


def _lines(lines: Sequence[str]) -> bytes:
    if any("\n" in line for line in lines):
        raise UserError("a path with a line break can't be read over there: rename its folder")
    return "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape")


def _members(archive: bytes) -> list[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as opened:
        found = [(member, opened.extractfile(member)) for member in opened]
        return [(member.name, b"" if stream is None else stream.read()) for member, stream in found]


def grown(machine: Machine, offsets: Mapping[str, int], most_bytes: int = MOST_BYTES) -> dict[str, Grown]:
    """Return what each file has beyond its offset, in one call; no entry for one that has no more. Raises UserError."""
    if not offsets:
        return {}
    lines = _lines([f"{offset} {path}" for path, offset in offsets.items()])
    ended = machine.run(["sh", "-c", _GROWN, "sh", str(most_bytes)], stdin=lines)
    found: dict[str, Grown] = {}
    stream = io.BytesIO(ended.stdout)
    while head := stream.readline():
        offset, size, path = head.decode(errors="surrogateescape").rstrip("\n").split(" ", 2)
        found[path] = Grown(int(offset), stream.read(int(size)))
    return found
