"""Dataclasses from JSON and back: unknown fields are ignored, wrong types are named by field and value."""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import functools
import json
from pathlib import Path
from typing import (
    Any,
    Dict,
    Generic,
    Iterator,
    List,
    Literal,
    Mapping,
    Optional,
    Tuple,
    Type,
    TypeVar,
    Union,
    get_type_hints,
)

from trainjob.records.files import DamagedError, JsonLines, load_json

Value = TypeVar("Value")

_EXPECTED = {int: "a whole number", float: "a number", str: "text", bool: "true or false", dict: "an object"}
_LONGEST_SHOWN = 60
_MOST = 1 << 1000  # what a float can hold


def field(*, key: str, **more: Any) -> Any:
    """Return the dataclass field of a value that has another name in JSON."""
    return dataclasses.field(metadata={"key": key}, **more)


def required() -> Any:
    """Return the dataclass field of a value that must be given, though fields before it have defaults."""
    return dataclasses.field(default_factory=_not_given, metadata={"required": True})


def _not_given() -> Any:
    raise TypeError("a required field is not given")


def from_json(kind: Type[Value], value: object, where: str = "") -> Value:
    """Return `value`, parsed from JSON, as the dataclass `kind`. Raises DamagedError, which names the field."""
    if not isinstance(value, dict):
        raise _damaged(where, value, "an object")
    fields: Dict[str, Any] = {}
    for name, key, hint, is_required in _fields_of(kind):  # type: ignore[arg-type] # a class is hashable
        inside = "%s.%s" % (where, key) if where else key
        if key in value:
            fields[name] = _checked(hint, value[key], inside)
        elif is_required:
            raise DamagedError("%s is missing" % inside)
    return kind(**fields)


def load(kind: Type[Value], path: Path) -> Optional[Value]:
    """Return what the JSON file `path` says, as the dataclass `kind`; None if there is no file.

    Raises DamagedError, whose text is "FILE: FIELD is VALUE, expected …".
    """
    try:
        return from_json(kind, load_json(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except DamagedError as error:
        raise DamagedError("%s: %s" % (path.name, error)) from None


def read(kind: Type[Value], path: Path) -> Optional[Value]:
    """Return what `load` does, but None for a damaged file."""
    try:
        return load(kind, path)
    except DamagedError:
        return None


class Lines(Generic[Value]):
    """The records of a JSON-lines file that grows; damaged lines are passed over."""

    def __init__(self, kind: Type[Value], path: Path) -> None:
        self._kind, self._lines = kind, JsonLines(path)

    def new(self) -> Iterator[Value]:
        """Yield the records added since the last call."""
        for fields in self._lines.new():
            with contextlib.suppress(DamagedError):
                yield from_json(self._kind, fields)


def to_json(value: object) -> Any:
    """Return the dataclass `value` as what `json` can write."""
    if dataclasses.is_dataclass(value):
        return {_key(one): to_json(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    return [to_json(item) for item in value] if isinstance(value, (list, tuple)) else value


@functools.lru_cache(maxsize=None)  # `list` reads the same kinds of record for every run
def _fields_of(kind: Any) -> List[Tuple[str, str, Any, bool]]:
    """Return the fields of a dataclass: name, name in JSON, type, and whether each must be given."""
    hints, found = get_type_hints(kind), []
    for one in dataclasses.fields(kind):
        has_no_default = one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
        is_required = has_no_default or bool(one.metadata.get("required"))
        found.append((one.name, _key(one), hints[one.name], is_required))
    return found


def _key(one: "dataclasses.Field[Any]") -> str:
    return str(one.metadata.get("key", one.name))


def _checked(kind: Any, value: object, where: str) -> Any:
    """Return `value` as `kind`: a dataclass, a plain type, Any, or Optional, Union, List, Dict or Literal of those."""
    if kind is Any or type(value) is kind:
        return value
    if dataclasses.is_dataclass(kind):
        return from_json(kind, value, where)  # type: ignore[arg-type] # an instance is never an annotation
    inner: Tuple[Any, ...] = getattr(kind, "__args__", ())
    origin = getattr(kind, "__origin__", None)
    if origin is Union or type(kind).__name__ == "UnionType":  # X | None, where Python knows it
        return _one_of(inner, value, where)
    if origin is Literal:
        if value in inner:
            return value
        raise _damaged(where, value, " or ".join(map(str, inner)))
    if origin in (list, tuple, collections.abc.Sequence):
        if not isinstance(value, list):
            raise _damaged(where, value, "a list")
        is_fixed = origin is tuple and inner[-1] is not Ellipsis
        kinds = inner if is_fixed else inner[:1] * len(value)
        if len(kinds) != len(value):
            raise _damaged(where, value, "a list of %d" % len(kinds))
        items = [_checked(one, item, "%s[%d]" % (where, at)) for at, (one, item) in enumerate(zip(kinds, value))]
        return tuple(items) if origin is tuple else items
    if origin in (dict, collections.abc.Mapping):
        if not isinstance(value, dict):
            raise _damaged(where, value, "an object")
        return {key: _checked(inner[1], item, "%s.%s" % (where, key)) for key, item in value.items()}
    if kind is float and type(value) is int and abs(value) < _MOST:
        return float(value)
    raise _damaged(where, value, _EXPECTED.get(kind, "another value"))


def _one_of(kinds: Tuple[Any, ...], value: object, where: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    plain = [kind for kind in kinds if kind is not type(None)]
    if len(plain) == 1:
        return _checked(plain[0], value, where)
    expected: List[str] = []
    for kind in plain:
        choices = tuple(kind.__args__) if getattr(kind, "__origin__", None) is Literal else ()
        if type(value) is kind or value in choices:
            return value
        expected += choices or (_EXPECTED[kind],)
    raise _damaged(where, value, " or ".join(expected))


def _damaged(where: str, value: object, expected: str) -> DamagedError:
    text = json.dumps(value, ensure_ascii=False, default=str)
    shown = text if len(text) <= _LONGEST_SHOWN else "%s…" % text[:_LONGEST_SHOWN]
    return DamagedError("%s is %s, expected %s" % (where or "the whole file", shown, expected))
