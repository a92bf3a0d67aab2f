"""Reads what a script has saved (torch.save, safetensors, torch.distributed.checkpoint) and executes nothing of it.

A file of torch.save is a zip archive: a pickle, and the bytes of each tensor. Python's unpickler calls whatever the
pickle names; the one here hands out plain containers, and for every other class or function an object that only
remembers what it was given. So it needs neither torch nor the classes of the framework that saved.
"""

from __future__ import annotations

import collections
import io
import math
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple, Union

from trainjob.records import safetensors
from trainjob.records.files import DamagedError, open_regular, parse_json

TORCH, SAFETENSORS, DISTRIBUTED, COUNTERS = "torch.save", "safetensors", "torch.distributed.checkpoint", "JSON"

_ZIP = b"PK\x03\x04"
_MOST_PICKLE_BYTES = 256 << 20
_MOST_DEPTH = 60
_METADATA = ".metadata"
_TRAINER_STATE = "trainer_state.json"
_NAMES = (".pt", ".pth", ".pkl", ".ckpt", ".bin", ".tar", ".safetensors")
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
}


class SavedTensor(NamedTuple):
    """A tensor in a file: its type as safetensors names it, its shape, and its bytes, if they are in one piece."""

    dtype: str
    shape: Tuple[int, ...]
    data: bytes


class Leaf(NamedTuple):
    """One value of a saved state. `path` has the keys that lead to it."""

    path: Tuple[str, ...]
    value: Union[SavedTensor, int, float, bool, str, bytes, None]


class _Remembered:
    """Stands for an object of any class: what it was made of, and the state and items that it was given."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.parts: List[Any] = [*args, *kwargs.values()]
        self.items: Dict[Any, Any] = {}

    def __new__(cls, *args: object, **_kwargs: object) -> "_Remembered":
        made = super().__new__(cls)
        made.parts, made.items = list(args), {}
        return made

    def __setstate__(self, state: object) -> None:
        self.parts.append(state)

    def __setitem__(self, key: object, value: object) -> None:
        self.items[key] = value

    def append(self, value: object) -> None:
        """Take an element of a list."""
        self.parts.append(value)

    def extend(self, values: Sequence[Any]) -> None:
        """Take elements of a list."""
        self.parts.extend(values)

    def __hash__(self) -> int:
        return hash(repr(self.parts))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Remembered) and self.parts == other.parts


class _StorageType(NamedTuple):
    dtype: str


class _Storage(NamedTuple):
    dtype: str
    data: bytes


def _tensor(storage: object, offset: int, shape: Sequence[int], stride: Sequence[int], *_rest: object) -> Any:
    """Return the tensor that torch._utils._rebuild_tensor_v2 would make of these."""
    if not isinstance(storage, _Storage):
        return _Remembered(storage, offset, shape, stride)
    size = safetensors.SIZES.get(storage.dtype, 16)
    count = math.prod(shape)
    packed, expected = [], 1
    for length in reversed(shape):
        packed.append(expected)
        expected *= length
    if tuple(stride) == tuple(reversed(packed)) or count <= 1:
        return SavedTensor(storage.dtype, tuple(shape), storage.data[offset * size : (offset + count) * size])
    # A view in another order: element by element, which only small or transposed tensors need.
    places = [offset]
    for length, step in zip(shape, stride):
        places = [place + index * step for place in places for index in range(length)]
    data = b"".join(storage.data[place * size : (place + 1) * size] for place in places)
    return SavedTensor(storage.dtype, tuple(shape), data)


def _typed(function: object, _kind: object, args: Sequence[Any], state: object) -> Any:
    """Return what torch._tensor._rebuild_from_type_v2 would make of these."""
    made = function(*args) if callable(function) else _Remembered(*args)
    return made if isinstance(made, SavedTensor) else _Remembered(made, state)


# Every function that a pickle may call: these, which only put together what they are given.
_CALLED: Dict[Tuple[str, str], Callable[..., Any]] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): lambda value, *_rest: value,
    ("torch._utils", "_rebuild_parameter_with_state"): lambda value, *_rest: value,
    ("torch._tensor", "_rebuild_from_type_v2"): _typed,
    ("torch", "Size"): tuple,
    ("builtins", "set"): list,
    ("builtins", "frozenset"): list,
    ("builtins", "list"): list,
    ("_codecs", "encode"): lambda text, *_rest: str(text).encode("latin1", "replace"),
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: BinaryIO, storage: Callable[[str], bytes]) -> None:
        super().__init__(stream)
        self._storage = storage
        self._kinds: Dict[Tuple[str, str], type] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _CALLED:
            return _CALLED[module, name]
        if module in ("torch", "torch.storage") and name in _TYPES:
            return _StorageType(_TYPES[name])
        return self._kinds.setdefault((module, name), type(str(name), (_Remembered,), {}))

    def persistent_load(self, pid: object) -> Any:
        if not (isinstance(pid, tuple) and len(pid) >= 3 and pid[0] == "storage"):
            raise DamagedError("refers to something that is no tensor")
        kind = pid[1]
        return _Storage(kind.dtype if isinstance(kind, _StorageType) else "U8", self._storage(str(pid[2])))


def _read_pickle(data: bytes, storage: Callable[[str], bytes]) -> Any:
    try:
        return _Unpickler(io.BytesIO(data), storage).load()
    except DamagedError:
        raise
    except RecursionError:
        raise DamagedError("is nested too deeply") from None
    except Exception as error:  # noqa: BLE001 - a damaged pickle can fail in any way, all inside of this module
        raise DamagedError("can't be read: %s" % (str(error) or type(error).__name__)) from None


def _read_archive(stream: BinaryIO) -> Any:
    """Return what torch.save wrote into `stream`. Raises DamagedError."""
    try:
        with zipfile.ZipFile(stream) as archive:
            pickled = [name for name in archive.namelist() if name.split("/", 1)[-1] == "data.pkl"]
            if not pickled:
                raise DamagedError("is a zip archive and not of torch.save")
            prefix = pickled[0][: -len("data.pkl")]
            if archive.getinfo(pickled[0]).file_size > _MOST_PICKLE_BYTES:
                raise DamagedError("has a pickle larger than %d bytes" % _MOST_PICKLE_BYTES)
            return _read_pickle(archive.read(pickled[0]), lambda key: archive.read(prefix + "data/" + key))
    except (zipfile.BadZipFile, KeyError, EOFError, OSError, struct.error) as error:
        raise DamagedError("is torn: %s" % error) from None


class SavedState:
    """A state on disk: a file, or the folder of a distributed checkpoint. `written_at`: its time of change."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path, self.kind = path, kind
        newest = path if path.is_file() else max(path.iterdir(), key=lambda one: one.stat().st_mtime_ns)
        self.written_at = newest.stat().st_mtime_ns

    def leaves(self) -> Iterator[Leaf]:
        """Yield the values of the state. Raises DamagedError for a torn or damaged file."""
        if self.kind == SAFETENSORS:
            yield from _of_safetensors(self.path)
        elif self.kind == DISTRIBUTED:
            yield from _of_distributed(self.path)
        elif self.kind == COUNTERS:
            with open_regular(self.path) as stream:
                counters = parse_json(stream.read())
            yield from (Leaf((name,), counters.get(name)) for name in ("global_step", "epoch"))
        else:
            with open_regular(self.path) as stream:
                yield from _flat((), _read_archive(stream), 0)


def find(folder: Path, left_out: Callable[[Path], bool]) -> Iterator[SavedState]:
    """Yield the saved states below `folder`, without the files and folders of `left_out`."""
    if left_out(folder) or folder.is_symlink():
        return
    try:
        inside = sorted(folder.iterdir())
    except OSError:
        return
    if (folder / _METADATA).is_file() and any(path.suffix == ".distcp" for path in inside):
        yield SavedState(folder, DISTRIBUTED)
        return
    for path in inside:
        if path.is_dir():
            yield from find(path, left_out)
        elif path.is_file() and not path.is_symlink() and not left_out(path):
            kind = _kind(path)
            if kind is not None:
                yield SavedState(path, kind)


def _kind(path: Path) -> Union[str, None]:
    if path.suffix == ".safetensors":
        return SAFETENSORS
    if path.name == _TRAINER_STATE:
        return COUNTERS
    with open_regular(path) as stream:
        beginning = stream.read(4)
    # An empty file of such a name is a save that was torn at once.
    return TORCH if path.suffix in _NAMES and beginning in (_ZIP, b"") else None


def _of_safetensors(path: Path) -> Iterator[Leaf]:
    try:
        with open_regular(path) as stream:
            places, _ = safetensors.read_header(stream, path)
            for name, place in places.items():
                stream.seek(place.start)
                yield Leaf((name,), SavedTensor(place.dtype, tuple(place.shape), stream.read(place.size)))
    except safetensors.BrokenFileError as error:
        raise DamagedError("is torn: %s" % error) from None


def _of_distributed(folder: Path) -> Iterator[Leaf]:
    """Yield the parts that the ranks have saved of each value."""
    with open_regular(folder / _METADATA) as stream:
        metadata = _read_pickle(stream.read(), lambda _key: b"")
    stored = _attributes(metadata).get("storage_data")
    if not isinstance(stored, dict):
        raise DamagedError("has a .metadata without the places of its values")
    for index, place in stored.items():
        names, places = _attributes(index), _attributes(place)
        path = folder / str(places["relative_path"])
        with open_regular(path) as stream:
            stream.seek(int(places["offset"]))
            content = stream.read(int(places["length"]))
        if len(content) < int(places["length"]):
            raise DamagedError("is torn: %s ends too early" % path.name)
        offset = _attributes(names.get("offset")).get("size") or names.get("offset")
        if isinstance(offset, _Remembered) and offset.parts:
            offset = tuple(offset.parts[0])
        value = _read_archive(io.BytesIO(content)) if content[:4] == _ZIP else content
        path_of_part = (str(names["fqn"]),) if offset is None else (str(names["fqn"]), "part %s" % (offset,))
        yield from _flat(path_of_part, value, 0)


def _attributes(value: object) -> Dict[str, Any]:
    """Return the attributes of an object that was remembered."""
    merged: Dict[str, Any] = {}
    for part in value.parts if isinstance(value, _Remembered) else ():
        for one in part if isinstance(part, tuple) else (part,):
            merged.update(one if isinstance(one, dict) else {})
    return merged


def _flat(path: Tuple[str, ...], value: object, depth: int) -> Iterator[Leaf]:
    if depth > _MOST_DEPTH:
        raise DamagedError("is nested more than %d levels deep" % _MOST_DEPTH)
    if isinstance(value, (SavedTensor, int, float, str, bytes, type(None))):
        yield Leaf(path, value)
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat((*path, str(key)), inner, depth + 1)
    elif isinstance(value, _Storage):
        yield Leaf(path, SavedTensor(value.dtype, (len(value.data),), value.data))
    elif isinstance(value, (list, tuple)):
        if len(value) > 64 and all(isinstance(one, (int, float, str)) for one in value):
            yield Leaf(path, repr(value))  # the state of Python's random numbers, a history of losses
            return
        for number, inner in enumerate(value):
            yield from _flat((*path, str(number)), inner, depth + 1)
    elif isinstance(value, _Remembered):
        for number, inner in enumerate(value.parts):
            # An object is its attributes; only what it was made of beside them has numbers.
            yield from _flat(path if isinstance(inner, dict) else (*path, str(number)), inner, depth + 1)
        for key, inner in value.items.items():
            yield from _flat((*path, str(key)), inner, depth + 1)
