"""Files that survive an interruption, and one reader for all small files, which trusts nothing that it finds.

Written beside, fsynced, moved into place. Read only where the name stands for a regular file of a sensible size: a
pipe, a device or a folder under the name neither hangs a command nor fills its memory.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterator, List, Mapping, Optional, Union

# No record is larger: a submission with the difference of a large project is, at most.
MOST_BYTES = 64 << 20
MOST_DEPTH = 64
_MOST_WORD_BYTES = 4096
_MOST_DIGITS = 9
_BLOCK_BYTES = 1 << 16
_MOST_LINE_BYTES = 1 << 22


class DamagedError(ValueError):
    """The content under a name can't be used: not a regular file, too large, not JSON, or a field of another type."""


def write_atomically(path: Path, content: Union[str, bytes], mode: int = 0o644, *, durable: bool = True) -> None:
    """Write `content` to `path` so that a reader sees the old file or the new one, never a part.

    The file gets this mode, whatever the umask is. Not `durable`: it may be lost, or left empty, in a power cut. Raises
    OSError (a full disk, say) with nothing left beside.
    """
    staging = path.with_name(".%s.%d.part" % (path.name, os.getpid()))
    data = content.encode() if isinstance(content, str) else content
    try:
        descriptor = os.open(str(staging), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as stream:
            if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
                with contextlib.suppress(OSError):  # a file system without modes
                    os.fchmod(descriptor, mode)
            stream.write(data)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        os.replace(str(staging), str(path))
        if durable:
            sync_folder(path.parent)
    except BaseException:
        remove_if_there(staging)
        raise


@contextlib.contextmanager
def only_owner_writes() -> Iterator[None]:
    """Have this process create files and folders that anybody may read, and only their owner may write."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


def keep_others_from_writing(folder: Path) -> None:
    """Set the umask of this process and its children so that only the owner can write, if `folder` is shared."""
    if os.stat(str(folder)).st_mode & 0o077:
        os.umask(0o022)


def for_owner(path: str, flags: int) -> int:
    """Open a file that only its owner may write if it is created: an `opener` for `open`."""
    return os.open(path, flags, 0o644)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable: a moved file survives a power cut only after this."""
    descriptor = os.open(str(folder), os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def see_anew(folder: Path) -> None:
    """Open `folder`, which has a client of NFS ask its server: what it shows otherwise may be a minute old."""
    with contextlib.suppress(OSError):
        os.close(os.open(str(folder), os.O_RDONLY | os.O_NONBLOCK))


def remove_if_there(path: Path) -> None:
    """Remove the file `path`, quietly when there is none."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def write_json(path: Path, value: object, *, durable: bool = True) -> None:
    """Write `value` as indented JSON, atomically."""
    write_atomically(path, json_bytes(value), durable=durable)


def json_bytes(value: object) -> bytes:
    """Return `value` as indented JSON."""
    return as_bytes(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def as_bytes(text: str) -> bytes:
    """Return JSON text as UTF-8: a lone surrogate (a file name that is not UTF-8) becomes JSON's own escape for it."""
    return text.encode("utf-8", "backslashreplace")


def open_regular(path: Path) -> BinaryIO:
    """Open the regular file `path` for reading. Raises DamagedError for anything else, OSError as `open` does."""
    try:
        # Without O_NONBLOCK, opening a pipe waits for a writer.
        descriptor = os.open(str(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENODEV):  # a socket, or a device without a driver
            raise DamagedError("is not a regular file") from None
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise DamagedError("is not a regular file")


def read_first(path: Path, most_bytes: int) -> bytes:
    """Return the first bytes of any regular file, under any name. Raises DamagedError for anything else, OSError."""
    with open_regular(path) as stream:
        # No further than its size, because a buffer of `most_bytes` takes time to set aside. A file of the kernel calls
        # itself empty: to read /proc/kmsg would wait, and take messages from others.
        return stream.read(min(os.fstat(stream.fileno()).st_size, most_bytes))


def read_small(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the content of a small regular file. Raises FileNotFoundError where there is none, else DamagedError."""
    try:
        content = read_first(path, most_bytes + 1)
    except (FileNotFoundError, NotADirectoryError, DamagedError):
        raise
    except OSError as error:
        raise DamagedError("can't be read (%s)" % error.strerror) from None
    if len(content) > most_bytes:
        raise DamagedError("is larger than %d bytes" % most_bytes)
    return content


def parse_json(content: Union[str, bytes]) -> Any:
    """Return the JSON value in `content`. Raises DamagedError, also for one that is nested too deeply."""
    try:
        value = json.loads(content)
    except RecursionError:
        raise DamagedError("is nested more than %d levels deep" % MOST_DEPTH) from None
    except ValueError as error:
        raise DamagedError("is not JSON: %s" % error) from None
    opening = ("{", "[") if isinstance(content, str) else (b"{", b"[")
    if sum(map(content.count, opening)) <= MOST_DEPTH:  # type: ignore[arg-type] # of its own kind
        return value
    level: List[Any] = [value]
    for _ in range(MOST_DEPTH):
        inside = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, (dict, list))]
        level = [item for items in inside for item in items]
        if not level:
            return value
    raise DamagedError("is nested more than %d levels deep" % MOST_DEPTH)


def load_json(path: Path) -> Any:
    """Return the JSON value in `path`. Raises FileNotFoundError where there is no file, DamagedError for any other."""
    return parse_json(read_small(path))


def read_json(path: Path) -> Optional[Any]:
    """Return the JSON value in `path`; None if there is no file, or one that is damaged."""
    try:
        return load_json(path)
    except (FileNotFoundError, NotADirectoryError, DamagedError):
        return None


def load_word(path: Path) -> Optional[str]:
    """Return the one word in `path`; None if there is no file or it is empty. Raises DamagedError, naming the file."""
    try:
        return read_small(path, _MOST_WORD_BYTES).decode("utf-8", "replace").strip() or None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except DamagedError as error:
        raise DamagedError("%s: %s" % (path.name, error)) from None


def load_number(path: Path) -> Optional[int]:
    """Return the whole number in `path`; None if there is no file or it is empty. Raises DamagedError."""
    word = load_word(path)
    # As number_in of launch/shell/record.sh reads it.
    if word is not None and not (word.isascii() and word.isdigit() and len(word) <= _MOST_DIGITS):
        raise DamagedError("%s: holds %r, expected a whole number" % (path.name, word[:60]))
    return None if word is None else int(word)


def read_word(path: Path) -> Optional[str]:
    """Return the one word in `path`; None if there is no file, or one that is empty or damaged."""
    try:
        return load_word(path)
    except DamagedError:
        return None


def read_number(path: Path) -> Optional[int]:
    """Return the whole number in `path`; None if there is none."""
    try:
        return load_number(path)
    except DamagedError:
        return None


def append_json_line(path: Path, value: Mapping[str, object]) -> None:
    """Append `value` as one line in one write, so that a kill tears at most the last line."""
    line = as_bytes(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")
    with open(str(path), "a+b", buffering=0, opener=for_owner) as stream:
        if stream.seek(0, os.SEEK_END):
            stream.seek(-1, os.SEEK_END)
            line = line if stream.read(1) == b"\n" else b"\n" + line
        stream.write(line)


class LineWriter:
    """Appends JSON objects to a file that stays open: opening it takes longer than a small net's forward pass."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream: Optional[BinaryIO] = None

    def append(self, value: Mapping[str, object]) -> None:
        """Append one line in one write. Raises OSError; the next call ends a torn line before it writes its own."""
        if self._stream is None:
            append_json_line(self._path, value)
            self._stream = open(str(self._path), "ab", buffering=0)  # noqa: SIM115 - it stays open
            return
        line = json.dumps(value, separators=(",", ":")).encode() + b"\n"
        if self._stream.write(line) != len(line):
            self.close()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))

    def close(self) -> None:
        """Close the file if it is open."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class JsonLines:
    """The objects of a JSON-lines file that grows, read in a stream; `damaged` counts the lines that are none.

    A torn last line is not counted: its writer may be about to end it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._is_in_long_line = False
        self.damaged = 0

    def new(self) -> Iterator[Dict[str, Any]]:
        """Yield the objects of the complete lines added since the last call, then that of a last line without end."""
        for block in self.blocks():
            yield from block

    def blocks(self) -> Iterator[List[Dict[str, Any]]]:
        """Yield what `new` does, many objects at a time."""
        try:
            stream = open_regular(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return
        except (OSError, DamagedError):
            self.damaged = max(self.damaged, 1)
            return
        with stream:
            stream.seek(self._offset)
            rest = b""
            for block in iter(lambda: stream.read(_BLOCK_BYTES), b""):
                whole, newline, after = block.rpartition(b"\n")
                if newline:
                    lines, rest = rest + whole, after
                    self._offset = stream.tell() - len(after)
                    yield self._objects(lines)
                elif len(rest) + len(block) <= _MOST_LINE_BYTES:
                    rest += block
                else:
                    rest, self._is_in_long_line = b"", True
                    self._offset = stream.tell()
            last = None if self._is_in_long_line else self._value(rest)
            if isinstance(last, dict):
                self._offset = stream.tell()
                yield [last]

    @staticmethod
    def _value(line: bytes) -> object:
        try:
            return json.loads(line)
        except (ValueError, RecursionError):
            return None

    def _objects(self, lines: bytes) -> List[Dict[str, Any]]:
        if self._is_in_long_line:
            lines, self._is_in_long_line = lines.partition(b"\n")[2], False
            self.damaged += 1
        try:
            # All at once takes half as long as one by one; lines that are not one value each show by their number.
            values = json.loads(b"[" + lines.replace(b"\n", b",") + b"]")
        except (ValueError, RecursionError):
            values = []
        if len(values) != lines.count(b"\n") + 1:
            values = [self._value(line) for line in lines.split(b"\n") if line.strip()]
        objects = [value for value in values if isinstance(value, dict)]
        self.damaged += len(values) - len(objects)
        return objects


class RankLines:
    """A folder with the JSON-lines file of each rank."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def rank(self, rank: int) -> Path:
        """Return the lines of one rank."""
        return self.folder / ("rank-%04d.jsonl" % rank)

    def ranks(self) -> List[List[Dict[str, Any]]]:
        """Return what each rank has written, in order."""
        return [list(JsonLines(path).new()) for path in sorted(self.folder.glob("rank-*.jsonl"))]

    def lines(self, rank: int) -> JsonLines:
        """Return what one rank has written, which grows as it trains."""
        return JsonLines(self.rank(rank))


def read_json_lines(path: Path) -> Iterator[Dict[str, Any]]:
    """Yield the objects of a JSON-lines file; torn and damaged lines are passed over, no file is no lines."""
    return JsonLines(path).new()
