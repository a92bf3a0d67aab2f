"""What pydantic refuses, in our words: what was read, what is expected, the cure."""

from __future__ import annotations

import difflib
import itertools
import json
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from trainjob.cluster.common import WORDS_OF_PATTERN

KeyPath = tuple[str | int, ...]
Written = Callable[[KeyPath], str | None]

_EXPECTED = {
    "string_type": "text",
    "string_unicode": "text of whole Unicode characters",
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "keys with values",
    "model_type": "keys with values",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "too_short": "at least {min_length} item",
    "literal_error": "{expected}",
}
_LONGEST_SHOWN = 60
_LIKE_ENOUGH = 0.6


class Fault(NamedTuple):
    """One thing that a model refuses, and where."""

    path: KeyPath
    text: str

    def __str__(self) -> str:
        """Return the key path and the text."""
        return f"{dotted(self.path)}: {self.text}" if self.path else self.text


def dotted(path: Iterable[str | int]) -> str:
    """Return a key path as people write it: nodes.cpus, hosts[1]."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word most like `word`; None where none is like it."""
    likeness, name = max(((_likeness(word, name), name) for name in known), default=((0.0, 0), ""))
    return name if likeness[0] >= _LIKE_ENOUGH else None


def _likeness(word: str, name: str) -> tuple[float, int]:
    """Return the share of letters in common and, to settle a tie, how many of them begin both."""
    one, other = (text.lower().replace("-", "_") for text in (word, name))
    beginning = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return difflib.SequenceMatcher(None, one, other).ratio(), len(list(beginning))


def faults(
    model: type[BaseModel], values: Mapping[str, object], error: ValidationError, written: Written
) -> list[Fault]:
    """Return what `model` refuses in `values`, one fault a key path, in the order of the model's keys.

    `written` gives the unquoted text that stands at a path, so that a value is shown as it was typed.
    """
    grouped: dict[KeyPath, list[Any]] = {}
    for detail in error.errors(include_url=False):
        grouped.setdefault(_path(detail, values), []).append(detail)
    found = [Fault(path, _describe(model, path, details, written)) for path, details in grouped.items()]
    return _without_echoes(model, found, grouped)


def _path(detail: Any, values: object) -> KeyPath:
    """Return pydantic's location without what it adds of its own: the branches of a union, "[key]"."""
    path: list[str | int] = []
    for step in detail["loc"]:
        if (isinstance(values, dict) and step in values) or (isinstance(values, list) and isinstance(step, int)):
            values = values[step]
            path.append(step)
    if detail["type"] == "missing":
        path.append(detail["loc"][-1])
    if detail["type"] == "breach":
        path.append(detail["ctx"]["key"])
    return tuple(path)


def _without_echoes(model: type[BaseModel], found: list[Fault], grouped: Mapping[KeyPath, list[Any]]) -> list[Fault]:
    """Drop a key that is missing only because it is misspelt, and "expected text" for a list with a wrong item."""
    meant = {
        (*path[:-1], nearest(str(path[-1]), _known_keys(model, path[:-1])))
        for path, details in grouped.items()
        if details[0]["type"] == "extra_forbidden"
    }
    deeper = {fault.path[:size] for fault in found for size in range(len(fault.path))}
    return [
        fault
        for fault in found
        if not (grouped[fault.path][0]["type"] == "missing" and fault.path in meant)
        and not (fault.path and fault.path in deeper)
    ]


def _describe(model: type[BaseModel], path: KeyPath, details: list[Any], written: Written) -> str:
    detail = details[0]
    match detail["type"]:
        case "extra_forbidden":
            return _unknown_key(path, _known_keys(model, path[:-1]))
        case "missing":
            return f"is missing: {_described(model, path)}"
        case "breach":
            return str(detail["ctx"]["message"])
        case "value_error":
            return str(detail["ctx"]["error"])
    # Of a union's branches, the one that took the type says more than those that didn't.
    closest = [each for each in details if not each["type"].endswith("_type")] or details
    expected = " or ".join(dict.fromkeys(_expected(each) for each in closest))
    value = detail["input"]
    return f"read {_shown(value, written(path))}, expected {expected}{_cure(details, value, written(path))}"


def _unknown_key(path: KeyPath, known: Iterable[str]) -> str:
    close = nearest(str(path[-1]), known)
    return f"is not a key: is {close} meant?" if close else f"is not a key: known here are {', '.join(known)}"


def _expected(detail: Any) -> str:
    context = detail.get("ctx", {})
    if detail["type"] == "string_pattern_mismatch":
        return WORDS_OF_PATTERN.get(context["pattern"], f"text that matches {context['pattern']}")
    known = _EXPECTED.get(detail["type"])
    return known.format(**context) if known else str(detail["msg"])


def _shown(value: object, written: str | None) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return "keys with values" if isinstance(value, dict) else "a list"
    text = written if written and not isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _cure(details: list[Any], value: object, written: str | None) -> str:
    wanted = {detail["type"] for detail in details}
    if value is None:
        return ": give a value, or take the key out"
    if wanted & {"string_type", "literal_error"} and written and not isinstance(value, str):
        return f': quote it, "{written}"'
    if wanted & {"int_type", "float_type"} and isinstance(value, str) and _is_a_number(value):
        return f": take the quotes away, {value}"
    return ""


def _is_a_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii()


def _known_keys(model: type[BaseModel], path: KeyPath) -> list[str]:
    found = _model_at(model, path)
    return list(found.model_fields) if found else []


def _described(model: type[BaseModel], path: KeyPath) -> str:
    parent = _model_at(model, path[:-1])
    field = parent.model_fields.get(str(path[-1])) if parent else None
    return (field.description if field else None) or "give it a value"


def _model_at(model: type[BaseModel], path: KeyPath) -> type[BaseModel] | None:
    """Return the model of the keys at `path`; None where free keys stand (env, directives)."""
    current: type[BaseModel] | None = model
    for step in path:
        field = current.model_fields.get(str(step)) if current else None
        kinds = (field.annotation, *typing.get_args(field.annotation)) if field else ()
        current = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
    return current
