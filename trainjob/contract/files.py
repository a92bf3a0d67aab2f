"""Files that survive an interruption: written beside, fsynced, moved into place."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Union


def write_atomically(path: Path, content: Union[str, bytes], mode: int = 0o644) -> None:
    """Write `content` to `path` so that a reader sees the old file or the new one, never a part.

    Raises OSError (a full disk, say) with nothing left beside.
    """
    staging = path.with_name(".%s.%d.part" % (path.name, os.getpid()))
    data = content.encode() if isinstance(content, str) else content
    try:
        descriptor = os.open(str(staging), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(str(staging), str(path))
        sync_folder(path.parent)
    except BaseException:
        remove_if_there(staging)
        raise


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable: a moved file survives a power cut only after this."""
    descriptor = os.open(str(folder), os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_if_there(path: Path) -> None:
    """Remove the file `path`, quietly when there is none."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically."""
    write_atomically(path, as_bytes(json.dumps(value, indent=1, ensure_ascii=False) + "\n"))


def as_bytes(text: str) -> bytes:
    """Return JSON text as UTF-8: a lone surrogate (a file name that is not UTF-8) becomes JSON's own escape for it."""
    return text.encode("utf-8", "backslashreplace")


def read_json(path: Path) -> Optional[Any]:
    """Return the JSON value in `path`; None where there is no file, or no whole JSON value."""
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def read_word(path: Path) -> Optional[str]:
    """Return the one word in `path`; None where there is no file or it is empty."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except FileNotFoundError:
        return None


def read_number(path: Path) -> Optional[int]:
    """Return the whole number in `path`; None where there is none."""
    word = read_word(path)
    try:
        return None if word is None else int(word)
    except ValueError:
        return None


def append_json_line(path: Path, value: Dict[str, Any]) -> None:
    """Append `value` as one line in one write, so that a kill tears at most the last line."""
    line = json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"
    with open(str(path), "ab", buffering=0) as stream:
        stream.write(_newline_after_a_torn_line(path) + as_bytes(line))


def _newline_after_a_torn_line(path: Path) -> bytes:
    with open(str(path), "rb") as stream:
        if stream.seek(0, os.SEEK_END) == 0:
            return b""
        stream.seek(-1, os.SEEK_END)
        return b"" if stream.read(1) == b"\n" else b"\n"


def read_json_lines(path: Path) -> Iterator[Dict[str, Any]]:
    """Yield the objects of a JSON-lines file; torn lines are passed over, no file is no lines."""
    with contextlib.suppress(FileNotFoundError), open(str(path), "rb") as stream:
        for line in stream:
            value = _json_or_none(line)
            if isinstance(value, dict):
                yield value


def _json_or_none(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
