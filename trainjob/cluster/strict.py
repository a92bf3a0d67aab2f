"""Frozen values with checked keys: the base of cluster files and jobs.

Annotations give the type and rules of each key. `build` checks values with plain Python and accepts only those that are
certainly right; `validation` checks all others with pydantic. Nearly every file and flag is right, and loading pydantic
takes as long as everything else that `plan` does.
"""

from __future__ import annotations

import dataclasses
import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from trainjob.contract.errors import RuleError

Value = TypeVar("Value", bound="Strict")


class Rule(NamedTuple):
    """Constraints on a value besides its type. `check` raises ValueError; `json_type` is only for the schema."""

    pattern: str = ""
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    fewest: int = 0  # items of a list
    check: Callable[[Any], Any] | None = None
    json_type: tuple[str, ...] = ()

    def enforce(self, value: Any) -> None:
        """Raise ValueError unless `value` follows the rule."""
        holds = (
            (not self.pattern or re.fullmatch(self.pattern, value))
            and (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
            and (self.below is None or value < self.below)
            and (not self.fewest or len(value) >= self.fewest)
        )
        if not holds:
            raise ValueError
        if self.check is not None:
            self.check(value)


class BreachError(RuleError):
    """A broken rule between keys, which is reported at the line of `key`."""

    def __init__(self, key: str, text: str, cure: str = "") -> None:
        super().__init__(text, cure)
        self.key = key


class Key(NamedTuple):
    """One key: its annotation, its default (dataclasses.MISSING if it must be given), and its description."""

    annotation: Any
    default: Any
    what: str


def key(default: Any, what: str) -> Any:
    """Return the dataclass field of a key; every value gets its own copy of a default list or mapping."""
    metadata = {"what": what}
    if isinstance(default, dict | list):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def required(what: str) -> Any:
    """Return the dataclass field of a key that must be given."""
    return dataclasses.field(metadata={"what": what})


@dataclass(frozen=True, kw_only=True)
class Strict:
    """A frozen value. Unknown keys are refused, and so are "4" and true for a number."""

    stated: frozenset[str] = dataclasses.field(default=frozenset(), repr=False, compare=False)

    @classmethod
    def keys(cls) -> Mapping[str, Key]:
        """Return the keys by name, in order."""
        hints = get_type_hints(cls, include_extras=True)
        return {
            field.name: Key(
                hints[field.name],
                field.default if field.default_factory is dataclasses.MISSING else field.default_factory(),
                field.metadata["what"],
            )
            for field in dataclasses.fields(cls)
            if "what" in field.metadata
        }

    @classmethod
    def spelled_out(cls, values: Mapping[str, object]) -> Mapping[str, object]:
        """Return `values` with short forms replaced by the keys that they stand for."""
        return values

    def enforce_rules(self) -> None:
        """Raise BreachError if keys contradict each other."""

    def changed(self, **changes: Any) -> Self:
        """Return a copy with `changes`, which are not checked."""
        return dataclasses.replace(self, **changes, stated=self.stated | changes.keys())

    def as_values(self, *, stated_only: bool = False) -> dict[str, Any]:
        """Return the values by key, ready for JSON; with `stated_only`, without the keys left at their defaults."""
        names = [name for name in keys_of(type(self)) if not stated_only or name in self.stated]
        return {name: _as_json(getattr(self, name), stated_only) for name in names}


def _as_json(value: Any, stated_only: bool) -> Any:
    if isinstance(value, Strict):
        return value.as_values(stated_only=stated_only)
    return [_as_json(item, stated_only) for item in value] if isinstance(value, list) else value


def keys_of(kind: type[Strict]) -> Mapping[str, Key]:
    """Return the keys of `kind` by name, which are computed once."""
    if kind not in _KEYS:
        _KEYS[kind] = kind.keys()
    return _KEYS[kind]


_KEYS: dict[type[Strict], Mapping[str, Key]] = {}


def build(kind: type[Value], values: Mapping[str, object]) -> Value:
    """Return the value of `kind` with the keys in `values`. Raises ValueError if one is not certainly right."""
    keys = keys_of(kind)
    built = {name: _built(keys[name].annotation, value) for name, value in values.items() if name in keys}
    missing = [name for name, entry in keys.items() if entry.default is dataclasses.MISSING and name not in built]
    if missing or len(built) < len(values):
        raise ValueError
    value = kind(**built, stated=frozenset(built))
    value.enforce_rules()
    return value


def _built(kind: Any, value: Any) -> Any:
    """Return `value` converted to the annotation `kind`. Raises ValueError."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        built = _built(arguments[0], value)
        for rule in arguments[1:]:
            rule.enforce(built)
        return built
    if origin in (Union, UnionType):
        return _one_of(arguments, value)
    if origin is Literal:
        return _require(type(value) is str and value in arguments, value)
    if origin is list:
        return [_built(arguments[0], item) for item in _require(type(value) is list, value)]
    if origin is dict:
        items = _require(type(value) is dict, value).items()
        return {_built(arguments[0], name): _built(arguments[1], item) for name, item in items}
    if issubclass(kind, Strict):
        return build(kind, _require(type(value) is dict, value))
    return _plain(kind, value)


def _one_of(kinds: tuple[Any, ...], value: Any) -> Any:
    for kind in kinds:
        try:
            return _built(kind, value)
        except ValueError:
            continue
    raise ValueError


def _plain(kind: Any, value: Any) -> Any:
    if kind is float:
        number = float(_require(type(value) in (int, float) and abs(value) <= sys.float_info.max, value))
        return _require(math.isfinite(number), number)
    _require(type(value) is kind, value)
    if kind is str:
        value.encode()  # half of a surrogate pair raises UnicodeEncodeError, which is a ValueError
    return value


def _require(holds: bool, value: Any) -> Any:
    if not holds:
        raise ValueError
    return value
