"""The commands and assignments that a shell script makes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from batchfiles.bash.expansion import Variables, Word
from batchfiles.bash.values import Value


class Condition(NamedTuple):
    """The branch of an `if` or a `case` that contains a command."""

    number: int  # of the statement
    branch: int
    text: str  # the tests that led here


@dataclass
class ShellCommand:
    """A command that the script runs."""

    words: list[Word]
    line: int
    settings: dict[str, Value]  # NAME=value before it
    variables: Variables  # as they are when it starts
    options: frozenset[str]  # of the shell: e, u, pipefail
    within: tuple[
        str, ...
    ] = ()  # from the outermost: if, loop, function, substitution, subshell, and, or, not, called, handler
    conditions: tuple[Condition, ...] = ()  # the branches around it
    source: str = ""  # the file, where it is not the batch file itself
    place: int = 0  # the line of the batch file that leads there; 0 in the batch file itself
    at: int = 0  # the byte of the batch file at which it, or what leads there, begins
    piped_into: str | None = None  # the last command of its pipeline
    is_call: bool = False  # of a function
    background: bool = False
    dead: bool = False  # in a branch that this job never takes
    writes_to: list[tuple[str, Value]] = field(default_factory=list)  # operator, file
    reads: Value | None = None  # a here-string

    @property
    def name(self) -> str:
        """The command's own name, without its folder."""
        return self.words[0].text.rpartition("/")[2] if self.words else ""

    def inside(self, *what: str) -> bool:
        """Return whether it is part of one of these."""
        return not set(what).isdisjoint(self.within)

    def is_instead_of(self, other: ShellCommand) -> bool:
        """Return whether another branch runs it than `other`."""
        ways = {one.number: one.branch for one in other.conditions}
        return any(ways.get(one.number, one.branch) != one.branch for one in self.conditions)

    @property
    def literals(self) -> tuple[str, ...]:
        """The words that do not depend on variables: several commands of one line differ in them."""
        return tuple(word.source for word in self.words if "$" not in word.source)

    @property
    def text(self) -> str:
        """All words in one line."""
        return " ".join(word.text for word in self.words)


@dataclass
class Assignment:
    """A variable's new value."""

    name: str
    value: Value
    line: int
    exported: bool
    source: str
    array: list[Word] | None = None
    within: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    dead: bool = False
    text: str = ""
    at: int = 0  # as of a command
