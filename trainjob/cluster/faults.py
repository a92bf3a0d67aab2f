"""The errors in cluster files, job files and flags, in words: what was read, what is expected, and the cure."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar, get_args

from trainjob.cluster.strict import Checking, KeyPath, Refused, Strict, keys_of
from trainjob.contract.errors import UserError, joined, nearest

Value = TypeVar("Value", bound=Strict)
Written = Callable[[KeyPath], str | None]

_OF_ANOTHER_TYPE = ("text", "number", "type")
_LONGEST_SHOWN = 60
_MOST_FAULTS = 200  # users don't read more, and comparing each one with every key takes time


class Fault(NamedTuple):
    """One value that is refused, or YAML that is wrong: the key path, what is wrong, and the cure.

    Line and column count from 1. Column 0 is the whole line, and line 0 that of values that come from no file.
    """

    path: KeyPath
    text: str
    cure: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        """Return the key path, the text and the cure."""
        return self.place + joined(self.text, self.cure)

    @property
    def place(self) -> str:
        """The key path with a colon, which precedes the text; empty if no key is at fault."""
        return f"{dotted(self.path)}: " if self.path else ""


class InvalidError(ValueError):
    """Refused values, with every fault."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("; ".join(str(fault) for fault in faults))
        self.faults = faults


class ClusterError(UserError):
    """A cluster that can't be found, read or used."""

    code = "cluster"


class JobError(UserError):
    """A job file or a flag that can't be read."""

    code = "job"


def validated(kind: type[Value], values: Mapping[str, object], written: Written = lambda _path: None) -> Value:
    """Return `values` as a value of `kind`. Raises InvalidError with a fault for each key path, in the kind's order.

    `written` returns the unquoted text at a path, so that a value is shown as it was typed.
    """
    checking = Checking()
    value = checking.build(kind, kind.spelled_out(values))
    if not checking.refused:
        return value
    grouped: dict[KeyPath, list[Refused]] = {}
    for reason in checking.refused[:_MOST_FAULTS]:
        grouped.setdefault(reason.path, []).append(reason)
    # A key may be missing only because it is misspelt, and a list may have a wrong item where a text is possible, too.
    meant = {
        (*path[:-1], nearest(str(path[-1]), _known_keys(kind, path[:-1])))
        for path, reasons in grouped.items()
        if reasons[0].code == "unknown"
    }
    deeper = {path[:size] for path in grouped for size in range(1, len(path))}
    raise InvalidError(
        [
            Fault(path, *_in_words(kind, reasons, written(path)))
            for path, reasons in grouped.items()
            if path not in deeper and not (reasons[0].code == "missing" and path in meant)
        ]
    )


def dotted(path: Iterable[str | int]) -> str:
    """Return a key path as text: nodes.cpus, hosts[1]."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def _in_words(kind: type[Strict], reasons: Sequence[Refused], written: str | None) -> tuple[str, str]:
    """Return what is wrong with the value at one path, and the cure."""
    first = reasons[0]
    path, value = first.path, first.value
    match first.code:
        case "unknown":
            parent = _kind_at(kind, path[:-1])
            keys = _known_keys(kind, path[:-1])
            close = nearest(str(path[-1]), keys)
            meant = f"is {close} meant?" if close else f"the keys are {', '.join(keys)}"
            return "is not a key", (parent.meant_by(str(path[-1])) if parent else "") or meant
        case "missing":
            parent = _kind_at(kind, path[:-1])
            return "is missing", f"add it. {keys_of(parent)[str(path[-1])].what if parent else 'Give it a value'}"
        case "rule":
            return first.expected, first.cure
    # If one branch of a union accepts the type of the value, its reasons are more precise than those of the others.
    closest = [reason for reason in reasons if reason.code not in _OF_ANOTHER_TYPE]
    if all(reason.code == "choice" for reason in closest):
        closest = list(reasons)
    expected = " or ".join(dict.fromkeys(reason.expected for reason in closest))
    return f"read {_shown(value, written)}, expected {expected}", _cure(reasons, value, written)


def _shown(value: object, written: str | None) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return "keys with values" if isinstance(value, dict) else "a list"
    text = written if written and not isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _cure(reasons: Sequence[Refused], value: object, written: str | None) -> str:
    codes = {reason.code for reason in reasons}
    if value is None:
        return "give a value, or take the key out"
    # "least": another branch of a union accepts the type of the value.
    if codes & {"text", "choice"} and "least" not in codes and written and not isinstance(value, str):
        return f'quote it, "{written}"'
    if reasons[0].expected == "a list" and isinstance(value, str):
        with contextlib.suppress(ValueError):  # a quotation that does not end
            words = shlex.split(value) if reasons[0].path == ("command",) else [value]
            return f"write it as {json.dumps(words, ensure_ascii=False)}"
    if "number" in codes and isinstance(value, str) and value.isascii():
        with contextlib.suppress(ValueError):
            number = float(value)
            # YAML reads neither 08 nor 1e3 as a number, with quotes or without.
            return f"write {number:.12g}" if written == value else f"take the quotes away, {number:.12g}"
    return ""


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
