"""A place where commands run: this machine, or one reached over ssh. Who gives commands need not know which."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO, Protocol

from trainjob.submit.process import Completed

# What one short command may take, network and a busy login node included.
ANSWER_S = 60.0


class Machine(Protocol):
    """Runs commands and moves folders. Paths on the machine are text; a leading `~/` means the home there."""

    @property
    def name(self) -> str:
        """What messages call the machine: "this machine", or the host as the user wrote it."""

    def run(
        self,
        arguments: Sequence[str],
        *,
        folder: str | None = None,
        stdin: bytes | IO[bytes] = b"",
        stdout: IO[bytes] | None = None,
        timeout_s: float = ANSWER_S,
        check: bool = True,
    ) -> Completed:
        """Return what a command left that ran in `folder` (absent: the home there, or here the working folder).

        Every argument arrives as it is. With `stdout`, the output goes into that open file. Raises CommandError when
        it fails (with `check`), is missing or hangs, and what is told apart of a machine that can't be reached.
        """

    def send(self, source: Path, target: str) -> None:
        """Copy the folder `source` to `target` on the machine, where it is whole or not there at all.

        Called again after it was cut, it goes on where it was. Raises UserError; a full quota is named as such, and
        so is a `target` that is there already.
        """

    def receive(self, source: str, target: Path) -> None:
        """Copy the machine's folder `source` to `target`, which is new, and whole or not there. Raises UserError."""
