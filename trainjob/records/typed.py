"""Dataclasses from JSON and back: unknown fields are ignored, wrong types are named by field and value."""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import json
from pathlib import Path
from typing import Any, Dict, Literal, Mapping, Optional, Tuple, Type, TypeVar, Union, get_type_hints

from trainjob.records.files import DamagedError, load_json

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


def from_json(kind: Type[Value], value: Any, where: str = "") -> Value:
    """Return `value`, parsed from JSON, as the dataclass `kind`. Raises DamagedError, which names the field."""
    if not isinstance(value, dict):
        raise _damaged(where, value, "an object")
    hints = _hints_of(kind)  # type: ignore[arg-type] # a class is hashable
    fields: Dict[str, Any] = {}
    for one in dataclasses.fields(kind):  # type: ignore[arg-type] # every kind is a dataclass
        key, inside = _key(one), "%s.%s" % (where, _key(one)) if where else _key(one)
        if key in value:
            fields[one.name] = _checked(hints[one.name], value[key], inside)
        elif _is_required(one):
            raise DamagedError("%s is missing" % inside)
    return kind(**fields)


def read(kind: Type[Value], path: Path) -> Optional[Value]:
    """Return what the JSON file `path` says, as the dataclass `kind`; None if there is no file.

    Raises DamagedError, whose text is "FILE: FIELD is VALUE, expected …".
    """
    try:
        return from_json(kind, load_json(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except DamagedError as error:
        raise DamagedError("%s: %s" % (path.name, error)) from None


def to_json(value: Any) -> Any:
    """Return the dataclass `value` as what `json` can write."""
    if dataclasses.is_dataclass(value):
        return {_key(one): to_json(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    return [to_json(item) for item in value] if isinstance(value, (list, tuple)) else value


@functools.lru_cache(maxsize=None)  # `list` reads the same kinds of record for every run
def _hints_of(kind: Any) -> Dict[str, Any]:
    return get_type_hints(kind)


def _key(one: Any) -> str:
    return str(one.metadata.get("key", one.name))


def _is_required(one: Any) -> bool:
    has_no_default = one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
    return bool(has_no_default or one.metadata.get("required"))


def _checked(kind: Any, value: Any, where: str) -> Any:
    """Return `value` as `kind`: a dataclass, a plain type, Any, or Optional, Union, List, Dict or Literal of those."""
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        return from_json(kind, value, where)  # type: ignore[arg-type] # an instance is never an annotation
    inner: Tuple[Any, ...] = getattr(kind, "__args__", ())
    origin = getattr(kind, "__origin__", None)
    if origin is Union or type(kind).__name__ == "UnionType":  # X | None, where Python knows it
        return _one_of(inner, value, where)
    if origin is Literal:
        return value if value in inner else _refuse(where, value, " or ".join(map(str, inner)))
    if origin in (list, collections.abc.Sequence):
        return [_checked(inner[0], item, "%s[%d]" % (where, at)) for at, item in enumerate(_of(list, value, where))]
    if origin is tuple:
        items = _of(list, value, where)
        kinds = inner[:1] * len(items) if inner[-1] is Ellipsis else inner
        if len(kinds) != len(items):
            _refuse(where, value, "a list of %d" % len(kinds))
        return tuple(_checked(one, item, "%s[%d]" % (where, at)) for at, (one, item) in enumerate(zip(kinds, items)))
    if origin in (dict, collections.abc.Mapping):
        return {key: _checked(inner[1], item, "%s.%s" % (where, key)) for key, item in _of(dict, value, where).items()}
    return _plain(kind, value, where)


def _one_of(kinds: Tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    plain = [kind for kind in kinds if kind is not type(None)]
    if len(plain) == 1:
        return _checked(plain[0], value, where)
    for kind in plain:
        if type(value) is kind or value in _choices(kind):
            return value
    return _refuse(where, value, " or ".join(word for kind in plain for word in _choices(kind) or (_EXPECTED[kind],)))


def _choices(kind: Any) -> Tuple[Any, ...]:
    return tuple(kind.__args__) if getattr(kind, "__origin__", None) is Literal else ()


def _plain(kind: Any, value: Any, where: str) -> Any:
    if kind is float and type(value) is int:
        return float(value) if abs(value) < _MOST else _refuse(where, value, "a number")
    return value if type(value) is kind else _refuse(where, value, _EXPECTED.get(kind, "another value"))


def _of(kind: Any, value: Any, where: str) -> Any:
    return value if isinstance(value, kind) else _refuse(where, value, "a list" if kind is list else "an object")


def _refuse(where: str, value: Any, expected: str) -> Any:
    raise _damaged(where, value, expected)


def _damaged(where: str, value: Any, expected: str) -> DamagedError:
    text = json.dumps(value, ensure_ascii=False, default=str)
    shown = text if len(text) <= _LONGEST_SHOWN else "%s…" % text[:_LONGEST_SHOWN]
    return DamagedError("%s is %s, expected %s" % (where or "the whole file", shown, expected))
