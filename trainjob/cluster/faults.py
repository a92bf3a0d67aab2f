"""pydantic's errors in our words: what was read, what is expected, and the cure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from trainjob.cluster.common import WORDS_OF_PATTERN
from trainjob.cluster.strict import BreachError, Strict, keys_of
from trainjob.contract.errors import RuleError, joined, nearest

if TYPE_CHECKING:
    from pydantic import ValidationError

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
_MOST_FAULTS = 200  # nobody reads more, and comparing each one with every key takes time


class Fault(NamedTuple):
    """One value that a model refuses: its key path, what is wrong, and the cure."""

    path: KeyPath
    text: str
    cure: str = ""

    def __str__(self) -> str:
        """Return the key path, the text and the cure."""
        return self.place + joined(self.text, self.cure)

    @property
    def place(self) -> str:
        """The key path with a colon, which precedes the text; empty if no key is at fault."""
        return f"{dotted(self.path)}: " if self.path else ""


def dotted(path: Iterable[str | int]) -> str:
    """Return a key path as text: nodes.cpus, hosts[1]."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def faults(kind: type[Strict], values: Mapping[str, object], error: ValidationError, written: Written) -> list[Fault]:
    """Return what `kind` refuses in `values`, one fault for each key path, in the order of the kind's keys.

    `written` returns the unquoted text at a path, so that a value is shown as it was typed.
    """
    grouped: dict[KeyPath, list[Any]] = {}
    for detail in error.errors(include_url=False)[:_MOST_FAULTS]:
        grouped.setdefault(_path(detail, values), []).append(detail)
    all_faults = [Fault(path, *_describe(kind, path, details, written)) for path, details in grouped.items()]
    return _without_echoes(kind, all_faults, grouped)


def _path(detail: Any, values: object) -> KeyPath:
    """Return pydantic's location without the parts that are no keys: the branches of a union, "[key]"."""
    path: list[str | int] = []
    for step in detail["loc"]:
        if (isinstance(values, dict) and step in values) or (isinstance(values, list) and isinstance(step, int)):
            values = values[step]
            path.append(step)
    if detail["type"] == "missing":
        path.append(detail["loc"][-1])
    if detail["type"] == "value_error" and isinstance(detail["ctx"]["error"], BreachError):
        path.append(detail["ctx"]["error"].key)
    return tuple(path)


def _without_echoes(kind: type[Strict], faults: list[Fault], grouped: Mapping[KeyPath, list[Any]]) -> list[Fault]:
    """Drop keys that are missing only because they are misspelt, and "expected text" for a list with a wrong item."""
    meant = {
        (*path[:-1], nearest(str(path[-1]), _known_keys(kind, path[:-1])))
        for path, details in grouped.items()
        if details[0]["type"] == "extra_forbidden"
    }
    deeper = {fault.path[:size] for fault in faults for size in range(len(fault.path))}
    return [
        fault
        for fault in faults
        if not (grouped[fault.path][0]["type"] == "missing" and fault.path in meant)
        and not (fault.path and fault.path in deeper)
    ]


def _describe(kind: type[Strict], path: KeyPath, details: list[Any], written: Written) -> tuple[str, str]:
    """Return what is wrong, and the cure."""
    detail = details[0]
    match detail["type"]:
        case "extra_forbidden":
            keys = _known_keys(kind, path[:-1])
            close = nearest(str(path[-1]), keys)
            return "is not a key", f"is {close} meant?" if close else f"the keys are {', '.join(keys)}"
        case "missing":
            parent = _kind_at(kind, path[:-1])
            missing = keys_of(parent).get(str(path[-1])) if parent else None
            return "is missing", f"add it. {missing.what if missing else 'Give it a value'}"
        case "value_error":
            error = detail["ctx"]["error"]
            return (error.text, error.cure) if isinstance(error, RuleError) else (str(error), "")
    # If one branch of a union accepts the type of the value, its errors are more precise than those of the others.
    closest = [each for each in details if not each["type"].endswith("_type")]
    if all(each["type"] == "literal_error" for each in closest):
        closest = details
    expected = " or ".join(dict.fromkeys(_expected(each) for each in closest))
    value = detail["input"]
    return f"read {_shown(value, written(path))}, expected {expected}", _cure(details, value, written(path))


def _expected(detail: Any) -> str:
    context = detail.get("ctx", {})
    if detail["type"] == "string_pattern_mismatch":
        return WORDS_OF_PATTERN.get(context["pattern"], f"text that matches {context['pattern']}")
    template = _EXPECTED.get(detail["type"])
    return template.format(**context) if template else str(detail["msg"])


def _shown(value: object, written: str | None) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return "keys with values" if isinstance(value, dict) else "a list"
    text = written if written and not isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _cure(details: list[Any], value: object, written: str | None) -> str:
    types = {detail["type"] for detail in details}
    if value is None:
        return "give a value, or take the key out"
    is_accepted_type = "greater_than_equal" in types  # in another branch of a union
    if types & {"string_type", "literal_error"} and not is_accepted_type and written and not isinstance(value, str):
        return f'quote it, "{written}"'
    if types & {"int_type", "float_type"} and isinstance(value, str) and _is_a_number(value):
        return f"take the quotes away, {value}"
    return ""


def _is_a_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii()


def _known_keys(kind: type[Strict], path: KeyPath) -> list[str]:
    parent = _kind_at(kind, path)
    return list(keys_of(parent)) if parent else []


def _kind_at(kind: type[Strict], path: KeyPath) -> type[Strict] | None:
    """Return the kind of value that has the keys at `path`; None if any key is allowed there (env, directives)."""
    current: type[Strict] | None = kind
    for step in path:
        if isinstance(step, int):  # an item of a list has the keys of the list's type
            continue
        key = keys_of(current).get(step) if current else None
        branches = (key.annotation, *get_args(key.annotation)) if key else ()
        parts = [part for branch in branches for part in (branch, *get_args(branch))]
        current = next((part for part in parts if isinstance(part, type) and issubclass(part, Strict)), None)
    return current
