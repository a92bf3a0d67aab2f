"""The destination of each line of an adopted batch file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from batchfiles.bash.expansion import Word
from batchfiles.bash.values import HOLE

SECRETS_FILE = "put it into a secrets_file of mode 0600"
IN_BASH = "a job's prologue and command run in bash, not in"
HOLDS_SECRET = f"it holds a secret, which no job file or run directory may have: {SECRETS_FILE}"


class Where(Enum):
    """The destination of a line of the file."""

    JOB = "job file"
    CLUSTER = "cluster file"
    TRAINJOB = "done by trainjob"
    NOWHERE = "not needed"
    LOST = "not carried over"


# What has a word of the line that trains.
IN_COMMAND = Where.JOB, "in the words of command"
IN_CONTAINER = Where.CLUSTER, "container"
IN_DECIDED = Where.TRAINJOB, "in options that trainjob decides"


class Entry(NamedTuple):
    """One line, or several that are one statement."""

    line: int
    last: int
    text: str
    where: Where
    what: str
    span: tuple[int, int] | None = None  # its bytes; None for a part of a statement, such as one of srun's options

    @property
    def lines(self) -> str:
        """The line's number; the first and the last if there are several."""
        if not self.line:
            return "–"  # of sbatch's command line
        return str(self.line) if self.line == self.last else f"{self.line}-{self.last}"


@dataclass
class Account:
    """The account of a whole file, and what the result does otherwise because the file is wrong."""

    entries: list[Entry] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    apart: dict[tuple[Where, str], list[Word]] = field(default_factory=dict)  # words that others have than the command
    _settled: set[int] = field(default_factory=set)  # the words of commands that arrive, or that an entry names

    def settle(self, words: Iterable[Word]) -> None:
        """Take words of a command for accounted: they arrive as they are, or an entry names them."""
        self._settled.update(map(id, words))

    def set_apart(self, what: tuple[Where, str], words: Iterable[Word]) -> None:
        """Take words for accounted that `what` has, and not the command of the job."""
        listed = list(words)
        self.settle(listed)
        self.apart.setdefault(what, []).extend(listed)

    def is_settled(self, word: Word) -> bool:
        """Return whether a word of a command is accounted for."""
        return id(word) in self._settled

    def note(
        self,
        where: Where,
        line: int,
        text: str,
        what: str,
        last: int | None = None,
        span: tuple[int, int] | None = None,
        words: Iterable[Word] = (),
    ) -> None:
        """Say what became of the statement that begins in `line`, or of a part of it: of `words`."""
        self.settle(words)
        self.entries.append(Entry(line, last or line, text.replace(HOLE, "…"), where, what, span))

    def note_decided(self, line: int, program: str, words: Sequence[Word], what: str) -> None:
        """Say that a job decides options of a program by itself: `words` are theirs, with their values."""
        self.set_apart(IN_DECIDED, words)
        if words:
            names = [word.text.partition("=")[0] for word in words if word.text.startswith("-")]
            shown = " ".join([program, *(dict.fromkeys(names) or [words[0].source])])
            self.note(Where.TRAINJOB, line, shown, what)

    @property
    def sorted(self) -> list[Entry]:
        """The entries by line."""
        return sorted(self.entries, key=lambda entry: (entry.line, entry.last))

    @property
    def lost(self) -> list[Entry]:
        """What could not be carried over."""
        return [entry for entry in self.sorted if entry.where is Where.LOST]
