"""Errors that the user or the cluster can fix: one shape for problems, warnings, refusals and everything raised."""

from __future__ import annotations

from typing import Any, ClassVar, Dict, Iterable, Optional, Sequence, Tuple, Type, TypeVar

Error = TypeVar("Error", bound="UserError")

_LIKE_ENOUGH = 0.6


ERROR, WARNING, NOTE = "error", "warning", "note"
SEVERITIES = (ERROR, WARNING, NOTE)


class Problem:
    """One thing that is wrong (or, as a warning, probably not meant): every command reports it in this shape.

    `text` says what was read and which rule it breaks, with both values; `cure` says what to do about it. `where` is
    what shows it: a line of a file, a key, a host, a rank and its update; empty where the text says all. `code` is a
    stable kebab-case word for machines; texts may change.
    """

    # No dataclass: every launcher imports this module, and to load dataclasses takes as long as Python to start.
    __slots__ = ("code", "cure", "severity", "text", "where")

    def __init__(self, code: str, text: str, cure: str = "", severity: str = ERROR, where: str = "") -> None:
        self.code = code
        self.text = text
        self.cure = cure
        self.severity = severity
        self.where = where

    def _fields(self) -> Tuple[str, str, str, str, str]:
        return (self.code, self.severity, self.where, self.text, self.cure)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Problem) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        return "Problem%r" % (self._fields(),)

    def __str__(self) -> str:
        return joined(self.text, self.cure)

    def as_json(self) -> Dict[str, str]:
        """Return the problem for `--json`: docs/reference/problem.schema.json describes it."""
        return dict(zip(("code", "severity", "where", "text", "cure"), self._fields()))


class UserError(Exception):
    """An error that the user or the cluster can fix; the command line prints it and exits with 1.

    `UserError(text, cure, code)`; a subclass sets `code` for all its errors.
    """

    code: ClassVar[str] = "user-error"
    # Nothing was wrong with what was asked, and a controller or host is out of reach: later it may succeed.
    is_out_of_reach = False

    def __init__(self, text: str, cure: str = "", code: str = "") -> None:
        super().__init__(joined(text, cure))
        self.problem = Problem(code or type(self).code, text, cure)
        self._several: Tuple[Problem, ...] = ()

    @classmethod
    def of_all(cls: Type[Error], problems: Sequence[Problem], separator: str = "\n") -> Error:
        """Return one error that reports all `problems`, each with its own cure."""
        if len(problems) == 1:
            error = cls(problems[0].text, problems[0].cure, problems[0].code)
            error.problem = problems[0]
            return error
        error = cls(separator.join(str(problem) for problem in problems))
        error._several = tuple(problems)
        return error

    @property
    def text(self) -> str:
        """The problem, without the cure."""
        return self.problem.text

    @property
    def cure(self) -> str:
        """The advice; empty if the text already gives it."""
        return self.problem.cure

    @property
    def problems(self) -> Tuple[Problem, ...]:
        """Every problem that this error reports, in the order in which they were found; usually one."""
        return self._several or (self.problem,)

    def as_json(self) -> Dict[str, Any]:
        """Return the error for `--json`: the whole message, its parts, and all problems where there are several."""
        several = [problem.as_json() for problem in self.problems] if len(self.problems) > 1 else None
        whole = dict(self.problem.as_json(), error=str(self))
        return whole if several is None else dict(whole, problems=several)


def of_error(code: str, error: UserError) -> Problem:
    """Return the problem that `error` states, under the code of the check that met it."""
    return Problem(code, error.text, error.cure)


class ProblemsError(UserError):
    """Several problems of a job at once."""

    code = "problems"


class RuleError(ValueError):
    """A value that breaks a rule by itself, in any file: what was read with the rule, and the cure."""

    def __init__(self, text: str, cure: str = "") -> None:
        super().__init__(joined(text, cure))
        self.text, self.cure = text, cure


def joined(text: str, cure: str) -> str:
    """Return a text and its cure as people read them: "text: cure", or two sentences where the cure starts one.

    A text that ends with a line break, such as the end of a log, leaves the cure on the next line.
    """
    if not cure:
        return text
    if text.endswith("\n"):
        return text + cure
    if text.endswith((".", "?", "!", ":")):
        return "%s %s" % (text, cure)
    return "%s%s %s" % (text, "." if cure[0].isupper() else ":", cure)


def nearest(word: str, choices: Iterable[str]) -> Optional[str]:
    """Return the choice most like `word`, ignoring case and - against _; None if none is like it."""
    import difflib  # launchers import this module, and need neither
    import itertools

    def likeness(name: str) -> Tuple[float, int]:
        """Return the share of letters in common and, to settle a tie, how many of them begin both."""
        one, other = (text.lower().replace("-", "_") for text in (word, name))
        beginning = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other))
        return difflib.SequenceMatcher(None, one, other).ratio(), len(list(beginning))

    found = max(choices, key=likeness, default=None)
    return found if found is not None and likeness(found)[0] >= _LIKE_ENOUGH else None


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return "did you mean NAME? " with the nearest choice; nothing if none is like `word`."""
    close = nearest(word, choices)
    return "did you mean %s? " % close if close else ""
