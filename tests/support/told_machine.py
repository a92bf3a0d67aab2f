"""A machine that runs nothing: it remembers what it is told, and answers as a test says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from trainjob.machines.process import CommandError, Completed

Answers = Callable[[Sequence[str]], tuple[int, bytes] | Exception]


class ToldMachine:
    """Fits Machine. `answers` gives the exit code and the output of a command, or what it raises."""

    def __init__(self, name: str = "pod", answers: Answers = lambda _words: (0, b"")) -> None:
        self.name = name
        self.answers = answers
        self.calls: list[tuple[str, ...]] = []
        self.inputs: list[bytes] = []
        self.copies: list[tuple[str, str, str]] = []

    def run(
        self,
        arguments: Sequence[str],
        *,
        folder: str | None = None,
        stdin: bytes | IO[bytes] = b"",
        stdout: IO[bytes] | None = None,
        timeout_s: float = 60.0,
        check: bool = True,
    ) -> Completed:
        """Remember the command, and return what `answers` says of it."""
        assert folder is None
        assert stdout is None
        assert timeout_s
        self.calls.append(tuple(arguments))
        self.inputs.append(stdin if isinstance(stdin, bytes) else stdin.read())
        answer = self.answers(arguments)
        if isinstance(answer, Exception):
            raise answer
        code, output = answer
        ended = Completed(tuple(arguments), code, output, "it says why\n" if code else "")
        if check and code:
            raise CommandError("failed", ended)
        return ended

    def interactive(self, arguments: Sequence[str], *, terminal: bool) -> list[str]:
        """Return the command behind the machine's name."""
        return [self.name, *(["-t"] if terminal else []), *arguments]

    def send(self, source: Path, target: str) -> None:
        """Remember it."""
        self.copies.append(("send", str(source), target))

    def receive(self, source: str, target: Path) -> None:
        """Remember it."""
        self.copies.append(("receive", source, str(target)))
