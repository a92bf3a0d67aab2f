"""Reads what a script has saved (torch.save, safetensors, torch.distributed.checkpoint) and executes nothing of it.

A file of torch.save is a zip archive: a pickle, and the bytes of each tensor. Python's unpickler calls whatever the
pickle names; the one here hands out plain containers, and for every other class or function an object that only
remembers what it was given. So it needs neither torch nor the classes of the framework that saved. Tensors stay in the
mapped file until they are compared. A file may be damaged or made to harm: whatever it holds ends as DamagedError, with
memory and time in proportion to its size.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import math
import mmap
import pickle
import struct
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from trainjob.records import safetensors
from trainjob.records.files import DamagedError, open_regular, parse_json
from trainjob.verify.scripts.saved_tensors import SIZES, SavedTensor, Storage

TORCH, SAFETENSORS, DISTRIBUTED, COUNTERS = "torch.save", "safetensors", "torch.distributed.checkpoint", "JSON"

_ZIP = b"PK\x03\x04"
_LOCAL_HEADER = struct.Struct("<4s22xHH")  # of a zip archive's entry: its mark, and the lengths of what follows
_MOST_PICKLE_BYTES = 64 << 20
_MOST_VALUES = 1_000_000
_MOST_DEPTH = 60
_LONG_LIST, _LONG_TEXT = 64, 1000
_MOST_BITS = 4096
_MOST_CLASSES = 10_000
_MOST_DIMENSIONS = 32  # numpy's own, before numpy 2
_METADATA = ".metadata"
_TRAINER_STATE = "trainer_state.json"
_OF_TORCH = (".pt", ".pth", ".ckpt")
_NAMES = (*_OF_TORCH, ".pkl", ".bin", ".tar", ".safetensors")
# torch's names of types, of storages and of what newer files say instead -> safetensors' names
_TYPES = {
    "DoubleStorage": "F64",
    "FloatStorage": "F32",
    "HalfStorage": "F16",
    "BFloat16Storage": "BF16",
    "LongStorage": "I64",
    "IntStorage": "I32",
    "ShortStorage": "I16",
    "CharStorage": "I8",
    "ByteStorage": "U8",
    "BoolStorage": "BOOL",
    "UntypedStorage": "U8",
    "ComplexDoubleStorage": "C128",
    "ComplexFloatStorage": "C64",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}


@dataclass(frozen=True)
class Leaf:
    """One value of a saved state. `path` has the keys that lead to it."""

    path: tuple[str, ...]
    value: SavedTensor | int | float | bool | str | bytes | None


class _Pairs:
    """A dict of a pickle, as pairs: its keys are never hashed, which some are made to take forever for."""

    def __init__(self, *_made_of: object) -> None:
        self.pairs: list[tuple[Any, Any]] = []

    def __setitem__(self, key: object, value: object) -> None:
        self.pairs.append((key, value))

    def __setstate__(self, state: object) -> None:
        """Leave out attributes of the dict itself, as torch's `_metadata` is."""


class _Remembered:
    """Stands for an object of any class: what it was made of, and the state and items that it was given."""

    parts: list[Any]
    items: _Pairs

    def __new__(cls, *args: object, **_kwargs: object) -> _Remembered:
        made = super().__new__(cls)
        made.parts, made.items = list(args), _Pairs()
        return made

    def __setstate__(self, state: object) -> None:
        self.parts.append(state)

    def __setitem__(self, key: object, value: object) -> None:
        self.items[key] = value

    def append(self, value: object) -> None:
        """Take an element of a list or a set."""
        self.parts.append(value)

    add = append

    def extend(self, values: Sequence[object]) -> None:
        """Take elements of a list."""
        self.parts.extend(values)


@dataclass(frozen=True)
class _StorageType:
    dtype: str


@dataclass(frozen=True, eq=False)
class _TypedStorage:
    dtype: str
    storage: Storage


def _tensor(storage: object, offset: int, shape: Sequence[int], stride: Sequence[int], *_rest: object) -> Any:
    """Return the tensor that torch._utils._rebuild_tensor_v2 would make of these."""
    if not isinstance(storage, _TypedStorage):
        return _Remembered(storage, offset, shape, stride)
    numbers = [offset, *shape, *stride]
    is_sound = all(type(number) is int and 0 <= number < 1 << 62 for number in numbers)
    if not is_sound or not len(shape) == len(stride) <= _MOST_DIMENSIONS:
        raise DamagedError(f"has a tensor of shape {list(shape)} and stride {list(stride)}")
    last = offset + sum((length - 1) * step for length, step in zip(shape, stride, strict=True))
    ends = last + 1 if all(shape) else 0
    if ends * SIZES[storage.dtype] > storage.storage.data.nbytes:
        raise DamagedError(f"is torn: a tensor of shape {list(shape)} ends behind its storage")
    return SavedTensor(storage.dtype, tuple(shape), storage.storage, offset, tuple(stride))


def _tensor_of_newer_type(storage: object, *others: Any) -> Any:
    """Return the tensor that torch._utils._rebuild_tensor_v3 would make of these."""
    kind = others[5]
    if isinstance(storage, _TypedStorage) and isinstance(kind, _StorageType):
        storage = _TypedStorage(kind.dtype, storage.storage)
    return _tensor(storage, *others)


def _typed(function: object, _kind: object, args: Sequence[object], state: object) -> Any:
    """Return what torch._tensor._rebuild_from_type_v2 would make of these."""
    made = function(*args) if callable(function) else _Remembered(*args)
    return made if isinstance(made, SavedTensor) else _Remembered(made, state)


# Every function that a pickle may call: these, which only put together what they are given.
_CALLED: dict[tuple[str, str], Callable[..., Any]] = {
    ("collections", "OrderedDict"): _Pairs,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _tensor_of_newer_type,
    ("torch._utils", "_rebuild_parameter"): lambda value, *_rest: value,
    ("torch._utils", "_rebuild_parameter_with_state"): lambda value, *_rest: value,
    ("torch._tensor", "_rebuild_from_type_v2"): _typed,
    ("torch", "Size"): tuple,
    ("builtins", "set"): list,
    ("builtins", "frozenset"): list,
    ("builtins", "list"): list,
    ("_codecs", "encode"): lambda text, *_rest: str(text).encode("latin1", "replace"),
}


class _Unpickler(pickle._Unpickler):
    """Python's own unpickler, not C's: that one allocates gigabytes where a pickle of a few bytes says so."""

    def __init__(self, stream: BinaryIO, storage: Callable[[str], Storage]) -> None:
        super().__init__(stream)
        self._storage = storage
        self._storages: dict[str, Storage] = {}
        self._kinds: dict[tuple[str, str], type] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _CALLED:
            return _CALLED[module, name]
        if module in ("torch", "torch.storage") and name in _TYPES:
            return _StorageType(_TYPES[name])
        if len(self._kinds) > _MOST_CLASSES:
            raise DamagedError(f"names more than {_MOST_CLASSES} classes")
        return self._kinds.setdefault((module, name), type(str(name), (_Remembered,), {}))

    def persistent_load(self, pid: object) -> Any:
        if not (isinstance(pid, tuple) and len(pid) >= 3 and pid[0] == "storage"):
            raise DamagedError("refers to something that is no tensor")
        kind, key = pid[1], str(pid[2])
        if key not in self._storages:
            self._storages[key] = self._storage(key)
        return _TypedStorage(kind.dtype if isinstance(kind, _StorageType) else "U8", self._storages[key])


def _push_marked_pairs(unpickler: Any) -> None:
    made, marked = _Pairs(), unpickler.pop_mark()
    made.pairs = list(zip(marked[::2], marked[1::2], strict=True))
    unpickler.append(made)


_HASHES_NOTHING: dict[int, Callable[[Any], None]] = {
    pickle.EMPTY_DICT[0]: lambda unpickler: unpickler.append(_Pairs()),
    pickle.DICT[0]: _push_marked_pairs,
    pickle.EMPTY_SET[0]: lambda unpickler: unpickler.append(_Remembered()),
    pickle.FROZENSET[0]: lambda unpickler: unpickler.append(unpickler.pop_mark()),
}
# A table of its own, as the original one belongs to all unpicklers of this process.
_Unpickler.dispatch = {**pickle._Unpickler.dispatch, **_HASHES_NOTHING}


def _read_pickle(data: bytes, storage: Callable[[str], Storage]) -> Any:
    if len(data) > _MOST_PICKLE_BYTES:
        raise DamagedError(f"has a pickle larger than {_MOST_PICKLE_BYTES} bytes")
    try:
        return _Unpickler(io.BytesIO(data), storage).load()
    except DamagedError:
        raise
    except Exception as error:  # noqa: BLE001 - a damaged pickle can fail in any way, all inside of this module
        raise DamagedError(f"can't be read: {str(error) or type(error).__name__}") from None


def _mapped(path: Path) -> memoryview:
    """Return the content of a file, of which only what is looked at gets into memory."""
    with open_regular(path) as stream:
        if not stream.seek(0, io.SEEK_END):
            raise DamagedError("is torn: it is empty")
        return memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))


def _read_archive(content: memoryview) -> Any:
    """Return what torch.save wrote as `content`. Raises DamagedError."""
    try:
        with zipfile.ZipFile(_Window(content)) as archive:
            entries = {entry.filename: entry for entry in archive.infolist()}
    except Exception as error:  # noqa: BLE001 - zipfile fails in many ways where bits of its directory are others
        raise DamagedError(f"is torn: {error}") from None
    pickled = [name for name in entries if name.split("/", 1)[-1] == "data.pkl"]
    if not pickled:
        raise DamagedError("is a zip archive and not of torch.save")
    prefix = pickled[0][: -len("data.pkl")]
    return _read_pickle(
        bytes(_entry(content, entries, pickled[0])[: _MOST_PICKLE_BYTES + 1]),
        lambda key: Storage(_entry(content, entries, prefix + "data/" + key)),
    )


def _entry(content: memoryview, entries: dict[str, zipfile.ZipInfo], name: str) -> memoryview:
    """Return the bytes of an entry, which torch.save never compresses."""
    entry = entries.get(name)
    if entry is None:
        raise DamagedError(f"is torn: it has no {name}")
    if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
        raise DamagedError("has compressed or encrypted entries, as torch.save never writes them")
    begin = entry.header_offset
    header = bytes(content[begin : begin + _LOCAL_HEADER.size]) if begin >= 0 else b""
    mark, *lengths = _LOCAL_HEADER.unpack(header) if len(header) == _LOCAL_HEADER.size else (b"", 0, 0)
    begin += _LOCAL_HEADER.size + sum(lengths)
    if mark != _ZIP or begin + entry.file_size > len(content):
        raise DamagedError(f"is torn: {name} is not where the archive's directory says")
    return content[begin : begin + entry.file_size]


class _Window(io.RawIOBase):
    """A part of a mapped file, for what reads files."""

    def __init__(self, content: memoryview) -> None:
        self._content, self._position = content, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: len(self._content)}[whence]
        if base + offset < 0:
            raise ValueError("a place before the file")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        part = self._content[self._position : self._position + len(buffer)]
        buffer[: len(part)] = part
        self._position += len(part)
        return len(part)


class SavedState:
    """A state on disk: a file, or the folder of a distributed checkpoint. `written_at`: its time of change."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path, self.kind = path, kind
        newest = [path] if kind != DISTRIBUTED else path.iterdir()
        self.written_at = max(one.lstat().st_mtime_ns for one in newest)

    def leaves(self) -> Iterator[Leaf]:
        """Yield the values of the state. Raises DamagedError for a torn or damaged file."""
        try:
            yield from self._leaves()
        except safetensors.BrokenFileError as error:
            raise DamagedError(f"is torn: {error}") from None
        except OSError as error:
            raise DamagedError(f"can't be read ({error.strerror or error})") from None

    def _leaves(self) -> Iterator[Leaf]:
        if self.kind == SAFETENSORS:
            yield from _of_safetensors(self.path)
        elif self.kind == DISTRIBUTED:
            yield from _of_distributed(self.path)
        elif self.kind == COUNTERS:
            with open_regular(self.path) as stream:
                counters = parse_json(stream.read())
            if not isinstance(counters, dict):
                raise DamagedError("holds no JSON object")
            for name in ("global_step", "epoch"):
                if not isinstance(counters.get(name), (int, float, str, type(None))):
                    raise DamagedError(f"has a {name} that is no number")
                yield Leaf((name,), counters.get(name))
        else:
            yield from _flat((), _read_archive(_mapped(self.path)))


def find(folder: Path, left_out: Callable[[Path], bool]) -> Iterator[SavedState]:
    """Yield the saved states below `folder`, without the files and folders of `left_out`."""
    if left_out(folder) or folder.is_symlink():
        return
    try:
        inside = sorted(folder.iterdir())
        if (folder / _METADATA).is_file() and any(path.suffix == ".distcp" for path in inside):
            yield SavedState(folder, DISTRIBUTED)
            return
    except OSError:
        return
    for path in inside:
        if path.is_dir():
            yield from find(path, left_out)
        elif path.is_file() and not path.is_symlink() and not left_out(path):
            kind = _kind(path)
            if kind is not None:
                yield SavedState(path, kind)


def _kind(path: Path) -> str | None:
    if path.suffix == ".safetensors":
        return SAFETENSORS
    if path.name == _TRAINER_STATE:
        return COUNTERS
    if path.suffix not in _NAMES:
        return None
    try:
        with open_regular(path) as stream:
            beginning = stream.read(4)
    except (OSError, DamagedError):
        return TORCH  # reading it says why it can't be read
    # An empty file of such a name is a save that was torn at once. What is no archive may be anything under other
    # names, and a plain pickle, as torch wrote before its version 1.6, under all.
    is_damaged = path.suffix in _OF_TORCH and not beginning.startswith(b"\x80")
    return TORCH if beginning in (_ZIP, b"") or is_damaged else None


def _of_safetensors(path: Path) -> Iterator[Leaf]:
    with open_regular(path) as stream:
        places, _ = safetensors.read_header(stream, path)
    content = _mapped(path)
    for name, place in places.items():
        shape = tuple(place.shape)
        stride = tuple(math.prod(shape[dimension + 1 :]) for dimension in range(len(shape)))
        storage = Storage(content[place.start : place.start + place.size])
        yield Leaf((name,), SavedTensor(place.dtype, shape, storage, 0, stride))


def _of_distributed(folder: Path) -> Iterator[Leaf]:
    """Yield the parts that the ranks have saved of each value."""
    with open_regular(folder / _METADATA) as stream:
        metadata = _read_pickle(stream.read(_MOST_PICKLE_BYTES + 1), lambda _key: Storage(memoryview(b"")))
    stored = _attributes(metadata).get("storage_data")
    if not isinstance(stored, _Pairs):
        raise DamagedError("has a .metadata without the places of its values")
    contents: dict[str, memoryview] = {}
    for index, place in stored.pairs:
        names, places = _attributes(index), _attributes(place)
        file, *span = (places.get(name) for name in ("relative_path", "offset", "length"))
        if not isinstance(file, str) or Path(file).name != file or (folder / file).is_symlink():
            raise DamagedError(f"has a .metadata that names {file!r}, which is no file of its folder")
        begin, length = (number if type(number) is int and number >= 0 else -1 for number in span)
        if file not in contents:
            contents[file] = _mapped(folder / file) if (folder / file).is_file() else memoryview(b"")
        content = contents[file][begin : begin + length]
        if min(begin, length) < 0 or len(content) < length:
            missing = "ends too early" if contents[file] else "is missing or empty"
            raise DamagedError(f"is torn: {file} {missing}")
        offset = _attributes(names.get("offset")).get("size") or names.get("offset")
        if isinstance(offset, _Remembered) and offset.parts:
            offset = offset.parts[0]
        value = _read_archive(content) if bytes(content[:4]) == _ZIP else bytes(content)
        path = (_text(names.get("fqn")),) if offset is None else (_text(names.get("fqn")), f"part {_text(offset)}")
        yield from _flat(path, value)


def _attributes(value: object) -> dict[str, Any]:
    """Return the attributes of an object that was remembered."""
    merged: dict[str, Any] = {}
    for part in value.parts if isinstance(value, _Remembered) else ():
        for one in part if isinstance(part, tuple) else (part,):
            merged.update(
                (key, inner) for key, inner in (one.pairs if isinstance(one, _Pairs) else ()) if isinstance(key, str)
            )
    return merged


def _text(key: object) -> str:
    """Return the name of a key."""
    if isinstance(key, (str, bytes, float, bool, type(None))):
        return str(key[:_LONG_TEXT] if isinstance(key, (str, bytes)) else key)
    if isinstance(key, int):
        return str(key) if key.bit_length() < _MOST_BITS else "a number"
    if isinstance(key, tuple) and all(isinstance(one, (str, int, float)) for one in key):
        return f"({', '.join(map(_text, key))})"
    return type(key).__name__


def _flat(path: tuple[str, ...], value: object) -> Iterator[Leaf]:
    """Yield what a value holds, in order; what it holds twice, twice, up to so many values."""
    waiting: list[tuple[tuple[str, ...], object]] = [(path, value)]
    for visited in itertools.count():
        if not waiting:
            return
        if visited + len(waiting) > _MOST_VALUES or len(waiting[-1][0]) > _MOST_DEPTH:
            raise DamagedError(f"has more than {_MOST_VALUES} values, or {_MOST_DEPTH} levels of them")
        path, value = waiting.pop()
        if isinstance(value, int) and value.bit_length() > _MOST_BITS:
            yield Leaf(path, hex(value))
        elif isinstance(value, (SavedTensor, int, float, str, bytes, type(None))):
            yield Leaf(path, value)
        elif isinstance(value, _TypedStorage):
            yield Leaf(path, SavedTensor("U8", (value.storage.data.nbytes,), value.storage, 0, (1,)))
        elif isinstance(value, (list, tuple)) and len(value) > _LONG_LIST and all(map(_is_short, value)):
            yield Leaf(path, _digest(value))  # the state of Python's random numbers, a history of losses
        else:
            inside = [(((*path, name) if name else path), inner) for name, inner in _inside(value)]
            waiting += reversed(inside)


def _inside(value: object) -> Iterator[tuple[str, object]]:
    """Yield what a container holds by its name; "" where it needs none beside the container's."""
    if isinstance(value, _Pairs):
        yield from ((_text(key) or "''", inner) for key, inner in value.pairs)
    elif isinstance(value, (list, tuple)):
        yield from ((str(number), inner) for number, inner in enumerate(value))
    elif isinstance(value, _Remembered):
        # An object is its attributes; only what it was made of beside them has numbers.
        for number, inner in enumerate(value.parts):
            yield "" if isinstance(inner, _Pairs) else str(number), inner
        yield "", value.items


def _is_short(value: object) -> bool:
    if isinstance(value, int):
        return value.bit_length() <= _MOST_BITS
    return isinstance(value, float) or (isinstance(value, str) and len(value) <= _LONG_TEXT)


def _digest(values: Sequence[object]) -> str:
    """Return the words for a long list of plain values: equal where the lists are."""
    if len(values) > _MOST_VALUES:
        raise DamagedError(f"has more than {_MOST_VALUES} values")
    digest = hashlib.blake2b(digest_size=6)
    for one in values:
        digest.update(repr(one).encode("utf-8", "surrogatepass") + b"\0")
    return f"{len(values)} values, digest {digest.hexdigest()}"
