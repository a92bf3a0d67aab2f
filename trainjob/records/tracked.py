"""Files that frameworks write about their training: TensorBoard's event files, W&B's offline files, CSV, JSON.

Each reader goes on where it stopped, reads a bounded part at a time, and trusts nothing.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import os
import re
import struct
from pathlib import Path
from typing import BinaryIO, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from trainjob.records.files import DamagedError, load_json, open_regular, read_first

_MOST_AT_ONCE = 1 << 20
_MOST_RECORD = 1 << 20
_MOST_DEPTH, _MOST_ENTRIES = 4, 3000
_MOST_VALUES = 64
_END = 1 << 60
_WEIGHTS = (
    *(".pt", ".pth", ".bin", ".safetensors", ".ckpt", ".distcp", ".npz", ".h5", ".keras", ".msgpack", ".pkl", ".tar"),
    *(".npy", ".joblib", ".pickle"),
)
_NAMED = ("ckpt", "checkpoint")
_NEVER_STATE = (".py", ".pyc", ".sh", ".log", ".md", ".txt", ".yaml", ".yml", ".lock", ".part", ".tmp")
_ABSOLUTE = re.compile(r"(?<![\w./:$}])(?:~|/[\w.@+-]+)(?:/[\w.@+=,-]+)+")
# What trainings leave alone, or what is large and not theirs.
_NOT_SEARCHED = {"node_modules", "site-packages", "__pycache__"}
# LevelDB's log, in which W&B keeps its records.
_BLOCK, _HEAD, _FULL, _FIRST, _LAST = 32768, 7, 1, 2, 4
_STEPS = ("step", "_step", "global_step", "iteration", "iter", "current_steps", "update", "num_updates")
_TOTALS = ("total_steps", "max_steps")


class Logged(NamedTuple):
    """The values that a framework has logged at one step."""

    values: Mapping[str, float]
    step: Optional[int] = None
    total: Optional[int] = None
    epoch: Optional[float] = None
    at: Optional[float] = None  # in seconds since 1970; None: the file does not say


class Tracked:
    """One file, read on as it grows. `new` yields what was added since the last call."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._modified = 0.0  # of trainer_state.json, which each checkpoint has anew
        self._last_step = -1

    def new(self) -> Iterator[Logged]:
        """Yield what the file has got since the last call; a damaged file has nothing more."""
        try:
            with open_regular(self.path) as stream:
                if self.path.name == "trainer_state.json":
                    yield from self._state(os.fstat(stream.fileno()).st_mtime)
                elif ".tfevents." in self.path.name:
                    yield from self._events(stream)
                elif self.path.suffix == ".wandb":
                    yield from self._wandb(stream)
                else:
                    yield from self._rows(stream)
        except OSError:
            return
        except (DamagedError, struct.error, IndexError, ValueError, RecursionError, csv.Error):
            self._offset = _END  # nothing behind the damage can be found

    def _state(self, modified: float) -> Iterator[Logged]:
        if modified == self._modified:
            return
        state, self._modified = load_json(self.path), modified
        if not isinstance(state, dict):
            return
        total, history = _whole(state.get("max_steps")), state.get("log_history")
        for entry in history[-_MOST_VALUES:] if isinstance(history, list) else ():
            step = _whole(entry.get("step")) if isinstance(entry, dict) else None
            if step is not None and step > self._last_step:
                yield Logged(_numbers(entry), step, total, _number(entry.get("epoch")))
        self._last_step = _whole(state.get("global_step")) or self._last_step
        yield Logged({}, _whole(state.get("global_step")), total, _number(state.get("epoch")), modified)

    def _events(self, stream: BinaryIO) -> Iterator[Logged]:
        stream.seek(self._offset)
        content, at = stream.read(_MOST_AT_ONCE), 0
        while at + 12 <= len(content):
            (size,) = struct.unpack_from("<Q", content, at)
            if size > _MOST_RECORD:
                raise DamagedError("has a record of %d bytes" % size)
            end = at + 12 + size + 4
            if end > len(content):
                break
            fields = _fields(content[at + 12 : at + 12 + size])
            values = dict(_scalars(fields.get(5, [])))
            if values:
                when = _one(fields, 1)
                at_s = struct.unpack("<d", struct.pack("<Q", when))[0] if isinstance(when, int) else None
                yield Logged(values, _whole(_one(fields, 2) or 0), at=_number(at_s))
            at = end
        self._offset += at

    def _wandb(self, stream: BinaryIO) -> Iterator[Logged]:
        stream.seek(self._offset)
        content = stream.read(_MOST_AT_ONCE)
        at, start, held = 0, 0, b""
        if self._offset == 0:
            at = start = _HEAD  # the file's own head
        while True:
            left = _BLOCK - (self._offset + at) % _BLOCK
            if left < _HEAD:
                at += left
            if at + _HEAD > len(content):
                break
            _, size, kind = struct.unpack_from("<IHB", content, at)
            if at + _HEAD + size > len(content):
                break
            part = content[at + _HEAD : at + _HEAD + size]
            at += _HEAD + size
            if kind in (_FULL, _FIRST):
                held = b""
            held += part
            if kind in (_FULL, _LAST):
                start = at
                yield from _history(held)
        self._offset += start

    def _rows(self, stream: BinaryIO) -> Iterator[Logged]:
        is_csv = self.path.suffix == ".csv"
        names: List[str] = []
        if is_csv:
            names = next(csv.reader([stream.readline(1 << 14).decode("utf-8", "replace")]), [])
            self._offset = max(self._offset, stream.tell())
        stream.seek(self._offset)
        whole, newline, _ = stream.read(_MOST_AT_ONCE).rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        for line in whole.decode("utf-8", "replace").splitlines():
            if is_csv:
                row: Mapping[str, object] = dict(zip(names, next(csv.reader([line]), [])))
            else:
                try:
                    row = json.loads(line)
                except ValueError:
                    continue
            if isinstance(row, dict):
                lower = {str(name).lower(): value for name, value in row.items()}
                step = next((found for name in _STEPS if (found := _whole(_number(lower.get(name)))) is not None), None)
                total = next((found for name in _TOTALS if (found := _whole(_number(lower.get(name))))), None)
                yield Logged(_numbers(row), step, total, _number(lower.get("epoch")))


def find(folders: Sequence[Path], since: float) -> List[Path]:
    """Return the files below `folders` that a training has written after `since`, the surest first, then the newest."""
    ranked = ((_rank(entry.name), entry) for entry in _entries(folders))
    found = [(rank, -_modified(entry), entry.path) for rank, entry in ranked if rank is not None]
    return [Path(path) for _, modified, path in sorted(found) if -modified >= since]


def absolute_paths_in(file: Path) -> List[Path]:
    """Return the absolute paths that stand in a text, such as a configuration file's output folder."""
    try:
        text = read_first(file, _MOST_AT_ONCE).decode("utf-8", "replace")
    except (OSError, DamagedError):
        return []
    return [Path(os.path.expanduser(path)) for path in _ABSOLUTE.findall(text)]


def newest_checkpoint(folders: Sequence[Path]) -> float:
    """Return when saved state below `folders` was written last, in seconds since 1970; 0.0 if there is none.

    Each is searched for itself: a folder of data holds more names than a search takes.
    """
    saved = (
        entry
        for entry in itertools.chain.from_iterable(_entries([folder]) for folder in dict.fromkeys(folders))
        if entry.name.endswith(_WEIGHTS)
        or (any(word in entry.name.lower() for word in _NAMED) and not entry.name.endswith(_NEVER_STATE))
    )
    return max(map(_modified, saved), default=0.0)


def _modified(entry: "os.DirEntry[str]") -> float:
    try:
        return entry.stat(follow_symlinks=False).st_mtime if entry.is_file(follow_symlinks=False) else 0.0
    except OSError:  # it has just been removed
        return 0.0


def _entries(folders: Sequence[Path]) -> Iterator["os.DirEntry[str]"]:
    """Yield what is in folders and some levels below them, some thousand entries at most."""
    left, waiting = _MOST_ENTRIES, [(str(folder), 0) for folder in folders]
    while waiting and left > 0:
        folder, depth = waiting.pop(0)
        try:
            with os.scandir(folder) as entries:
                listed = list(itertools.islice(entries, left))
        except OSError:
            continue
        left -= len(listed)
        yield from listed
        for entry in listed if depth < _MOST_DEPTH else ():
            is_searched = not entry.name.startswith(".") and entry.name not in _NOT_SEARCHED
            if is_searched and entry.is_dir(follow_symlinks=False):
                waiting.append((entry.path, depth + 1))


def _rank(name: str) -> Optional[int]:
    """Return how sure a file of this name is about a training, 0 the surest; None if it is not about one."""
    if name == "trainer_state.json":
        return 1  # written with checkpoints only
    if name.startswith("events.out.tfevents."):
        return 0
    return {".wandb": 0, ".jsonl": 2}.get(
        os.path.splitext(name)[1], 2 if name in ("metrics.csv", "metrics.json") else None
    )


def _history(record: bytes) -> Iterator[Logged]:
    """Yield the values of a W&B record, if it is one of its history."""
    for message in _fields(record).get(2, []):
        if not isinstance(message, bytes):
            continue
        fields, values = _fields(message), {}
        for item in fields.get(1, []):
            parts = _fields(item) if isinstance(item, bytes) else {}
            names = [
                part.decode("utf-8", "replace")
                for part in [*parts.get(1, []), *parts.get(2, [])]
                if isinstance(part, bytes)
            ]
            text = _one(parts, 16)
            if isinstance(text, bytes) and len(text) < 64:
                values["/".join(filter(None, names))] = json.loads(text)
        numbers = _numbers(values)
        yield Logged(numbers, _whole(numbers.get("_step")), at=numbers.get("_timestamp"), epoch=numbers.get("epoch"))


def _scalars(summaries: Sequence[object]) -> Iterator[Tuple[str, float]]:
    for summary in summaries:
        for value in _fields(summary).get(1, [])[:_MOST_VALUES] if isinstance(summary, bytes) else ():
            fields = _fields(value) if isinstance(value, bytes) else {}
            tag, simple, tensor = _one(fields, 1), _one(fields, 2), _one(fields, 8)
            if isinstance(tensor, bytes) and simple is None:
                inside = _fields(tensor)
                content = _one(inside, 4) or _one(inside, 5)
                is_float = _one(inside, 1) == 1 and isinstance(content, bytes) and len(content) == 4
                simple = struct.unpack("<I", content)[0] if is_float and isinstance(content, bytes) else None
            if isinstance(tag, bytes) and isinstance(simple, int):
                number = struct.unpack("<f", struct.pack("<I", simple))[0]
                if math.isfinite(number):
                    yield tag.decode("utf-8", "replace"), number


def _fields(message: bytes) -> Dict[int, List[object]]:
    """Return the fields of a protocol buffer by number: numbers, and bytes."""
    found: Dict[int, List[object]] = {}
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        value: object
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
        elif kind == 2:
            size, at = _varint(message, at)
            value, at = message[at : at + size], at + size
        elif kind in (1, 5):
            width = 8 if kind == 1 else 4
            value, at = int.from_bytes(message[at : at + width], "little"), at + width
        else:
            raise ValueError("a field of kind %d" % kind)
        found.setdefault(key >> 3, []).append(value)
    return found


def _varint(message: bytes, at: int) -> Tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number that has no end")


def _one(fields: Mapping[int, List[object]], number: int) -> object:
    return fields[number][0] if fields.get(number) else None


def _number(value: object) -> Optional[float]:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _whole(value: object) -> Optional[int]:
    number = _number(value)
    return int(number) if number is not None and 0 <= number < 1 << 50 and number == int(number) else None


def _numbers(values: Mapping[str, object]) -> Dict[str, float]:
    pairs = ((str(name)[:80], _number(value)) for name, value in list(values.items())[:_MOST_VALUES])
    return {name: value for name, value in pairs if value is not None}
