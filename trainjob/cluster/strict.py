"""Frozen values with checked keys: the base of cluster files and jobs. Annotations give each key's type and rules."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from trainjob.contract.errors import RuleError

Value = TypeVar("Value", bound="Strict")
KeyPath = tuple[str | int, ...]


class Rule(NamedTuple):
    """Constraints on a value besides its type. `check` raises ValueError; `json_type` is only for the schema."""

    pattern: str = ""
    words: str = ""  # what an error says was expected, instead of the pattern
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    fewest: int = 0  # items of a list
    check: Callable[[Any], object] | None = None
    json_type: tuple[str, ...] = ()


class BreachError(RuleError):
    """A broken rule between keys, which is reported at the line of `key`."""

    def __init__(self, key: str, text: str, cure: str = "") -> None:
        super().__init__(text, cure)
        self.key = key


class Key(NamedTuple):
    """One key: its default (REQUIRED if it must be given), its description, and its annotation."""

    default: Any
    what: str
    annotation: Any = None  # resolved by `keys_of`


REQUIRED = object()


def key(default: object, what: str) -> Any:
    """Return a key with a default, as the class attribute that declares it."""
    return Key(default, what)


def required(what: str) -> Any:
    """Return a key that must be given, as the class attribute that declares it."""
    return Key(REQUIRED, what)


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Strict:
    """A frozen value. Unknown keys are refused, and so are "4" and true for a number.

    No dataclass, because making one takes as long as reading and planning a job with it.
    """

    declared: ClassVar[dict[str, Key]] = {}
    stated: frozenset[str] = frozenset()

    def __init_subclass__(cls) -> None:
        """Collect the keys that the class declares, after those of its bases."""
        bases = [base.declared for base in reversed(cls.__bases__) if issubclass(base, Strict)]
        inherited = {name: entry for declared in bases for name, entry in declared.items()}
        own = {name: entry for name, entry in vars(cls).items() if isinstance(entry, Key)}
        cls.declared = {**inherited, **vars(cls).get("declared", {}), **own}
        for name, entry in own.items():
            setattr(cls, name, entry.default)

    def __init__(self, *, stated: frozenset[str] = frozenset(), **values: Any) -> None:
        """Take the values, which are not checked; a default list or mapping is copied."""
        if not values.keys() <= self.declared.keys():
            raise TypeError(f"{type(self).__name__} has no {', '.join(values.keys() - self.declared.keys())}")
        for name, (default, *_) in self.declared.items():
            if name not in values:
                values[name] = default.copy() if isinstance(default, dict | list) else default
        vars(self).update(values, stated=stated)

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse every change."""
        raise AttributeError(f"{type(self).__name__} is frozen: {name} stays as it is")

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same keys and values, stated or not."""
        return type(self) is type(other) and {**vars(self), "stated": ()} == {**vars(other), "stated": ()}

    __hash__ = None  # type: ignore[assignment] # values may be lists

    def __repr__(self) -> str:
        """Return the values that differ from the defaults."""
        values = {name: getattr(self, name) for name in self.declared}
        shown = (f"{name}={value!r}" for name, value in values.items() if value != self.declared[name].default)
        return f"{type(self).__name__}({', '.join(shown)})"

    @classmethod
    def meant_by(cls, unknown: str) -> str:  # noqa: ARG003 - for kinds that know
        """Return the cure for a key that is none of these; empty if nobody knows what is meant."""
        return ""

    @classmethod
    def annotations(cls) -> Mapping[str, Any]:
        """Return the annotation of each key."""
        return get_type_hints(cls, include_extras=True)

    @classmethod
    def spelled_out(cls, values: Mapping[str, object]) -> Mapping[str, object]:
        """Return `values` with short forms replaced by the keys that they stand for."""
        return values

    def enforce_rules(self) -> None:
        """Raise BreachError if keys contradict each other."""

    def changed(self, **changes: Any) -> Self:
        """Return a copy with `changes`, which are not checked."""
        copied = object.__new__(type(self))
        vars(copied).update({**vars(self), **changes, "stated": self.stated | changes.keys()})
        return copied

    def as_values(self, *, stated_only: bool = False) -> dict[str, Any]:
        """Return the values by key, ready for JSON; with `stated_only`, without the keys left at their defaults."""
        names = [name for name in self.declared if not stated_only or name in self.stated]
        return {name: _as_json(getattr(self, name), stated_only) for name in names}


def _as_json(value: object, stated_only: bool) -> object:
    if isinstance(value, Strict):
        return value.as_values(stated_only=stated_only)
    return [_as_json(item, stated_only) for item in value] if isinstance(value, list) else value


_KEYS: dict[type[Strict], Mapping[str, Key]] = {}


def keys_of(kind: type[Strict]) -> Mapping[str, Key]:
    """Return the keys of `kind` by name, with their annotations, which are computed once."""
    if kind not in _KEYS:
        annotations = kind.annotations()
        _KEYS[kind] = {name: entry._replace(annotation=annotations[name]) for name, entry in kind.declared.items()}
    return _KEYS[kind]


class Refused(NamedTuple):
    """One reason why the value at a key path is refused.

    `code` is text, number or type if the value should have been of that type; choice, least or bound if it has the
    right type; unknown or missing for a key; and rule if `expected` is the whole text.
    """

    path: KeyPath
    code: str
    expected: str
    value: object = None
    cure: str = ""


_TYPES: Mapping[object, tuple[str, str]] = {
    str: ("text", "text"),
    int: ("number", "a whole number"),
    float: ("number", "a number"),
    bool: ("type", "true or false"),
}


class Checking:
    """Checks values and collects every reason for which one is refused; no result is of use if there is one."""

    def __init__(self) -> None:
        self.refused: list[Refused] = []

    def build(self, kind: type[Value], values: Mapping[str, object], path: KeyPath = ()) -> Value:
        """Return the value of `kind` with the keys in `values`."""
        keys, before, built = keys_of(kind), len(self.refused), {}
        for name, entry in keys.items():
            if name in values:
                built[name] = self._checked(entry.annotation, values[name], (*path, name))
            elif entry.default is REQUIRED:
                self.refused.append(Refused((*path, name), "missing", ""))
        self.refused += [
            Refused((*path, name), "unknown", "", value) for name, value in values.items() if name not in keys
        ]
        value = kind(**built, stated=frozenset(built))
        if len(self.refused) == before:
            try:
                value.enforce_rules()
            except BreachError as breach:
                self.refused.append(Refused((*path, breach.key), "rule", breach.text, cure=breach.cure))
        return value

    def _refuse(self, path: KeyPath, code: str, expected: str, value: object) -> None:
        self.refused.append(Refused(path, code, expected, value))

    def _checked(self, annotation: Any, value: Any, path: KeyPath) -> Any:
        """Return `value` converted to what the annotation says."""
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            before = len(self.refused)
            built = self._checked(arguments[0], value, path)
            for rule in arguments[1:] if len(self.refused) == before else ():
                self._enforce(rule, built, Refused(path, "bound", "", value))
            return built
        if origin in (Union, UnionType):
            return self._one_of(arguments, value, path)
        if origin is Literal:
            if type(value) is not str or value not in arguments:
                *first, last = map(repr, arguments)
                self._refuse(path, "choice", f"{', '.join(first)} or {last}" if first else last, value)
        elif origin is list:
            if type(value) is list:
                return [self._checked(arguments[0], item, (*path, at)) for at, item in enumerate(value)]
            self._refuse(path, "type", "a list", value)
        elif type(value) is not dict and (origin is dict or issubclass(annotation, Strict)):
            self._refuse(path, "type", "keys with values", value)
        elif origin is dict:
            return {
                self._checked(arguments[0], name, (*path, name)): self._checked(arguments[1], item, (*path, name))
                for name, item in value.items()
            }
        elif issubclass(annotation, Strict):
            return self.build(annotation, value, path)
        else:
            return self._plain(annotation, value, path)
        return value

    def _one_of(self, kinds: Sequence[object], value: object, path: KeyPath) -> object:
        """Return `value` as the first of `kinds` that accepts it; if none does, it is refused for all their reasons."""
        if value is None and NoneType in kinds:
            return None
        before = len(self.refused)
        for kind in kinds:
            if kind is not NoneType:
                earlier = len(self.refused)
                built = self._checked(kind, value, path)
                if len(self.refused) == earlier:
                    del self.refused[before:]
                    return built
        return value

    def _plain(self, kind: type, value: Any, path: KeyPath) -> object:
        is_whole = kind is float and type(value) is int and abs(value) <= sys.float_info.max
        if type(value) is not kind and not is_whole:
            self._refuse(path, *_TYPES[kind], value)
        elif kind is float:
            if math.isfinite(value):
                return float(value)
            self._refuse(path, "bound", "a finite number", value)
        elif kind is str and any("\ud800" <= sign <= "\udfff" for sign in value):
            self._refuse(path, "bound", "text of whole Unicode characters", value)
        return value

    def _enforce(self, rule: Rule, value: Any, refused: Refused) -> None:
        """Append `refused`, with what was expected, unless `value` follows the rule."""
        expected = ""
        if rule.pattern and not re.fullmatch(rule.pattern, value):
            expected = rule.words or f"text that matches {rule.pattern}"
        elif rule.at_least is not None and value < rule.at_least:
            expected, refused = f"at least {type(value)(rule.at_least)}", refused._replace(code="least")
        elif rule.above is not None and value <= rule.above:
            expected = f"more than {type(value)(rule.above)}"
        elif rule.at_most is not None and value > rule.at_most:
            expected = f"at most {type(value)(rule.at_most)}"
        elif rule.below is not None and value >= rule.below:
            expected = f"less than {type(value)(rule.below)}"
        elif rule.fewest and len(value) < rule.fewest:
            expected = f"at least {rule.fewest} item"
        elif rule.check is not None:
            try:
                rule.check(value)
            except ValueError as error:
                text, cure = (error.text, error.cure) if isinstance(error, RuleError) else (str(error), "")
                self.refused.append(refused._replace(code="rule", expected=text, cure=cure))
        if expected:
            self.refused.append(refused._replace(expected=expected))
