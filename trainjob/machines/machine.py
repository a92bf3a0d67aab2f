"""A machine: where commands run, this one or one that ssh reaches. Callers need not know which."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO, Protocol

from trainjob.machines.process import Completed

# The limit of a short command, including the network and a busy login node.
ANSWER_S = 60.0


class Machine(Protocol):
    """Runs commands and copies folders. Paths on the machine are text; a leading `~/` means the home folder there."""

    @property
    def name(self) -> str:
        """The machine's name in messages: "this machine", or the host as the user wrote it."""

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
        """Run a command in `folder` and return its result (absent: the home folder there; on this machine the current).

        Every argument arrives unchanged. With `stdout`, the output goes into that open file. Raises CommandError when
        the command fails (with `check`), is missing or hangs, and SshError when the machine can't be reached.
        """

    def interactive(self, arguments: Sequence[str], *, terminal: bool) -> list[str]:
        """Return the command that runs `arguments` on the machine with our own input and output, or our `terminal`."""

    def send(self, source: Path, target: str) -> None:
        """Copy the folder `source` to `target` on the machine, where it is complete or does not exist.

        Called again after an interruption, it continues. Raises UserError, also for a full quota and for a `target`
        that exists.
        """

    def receive(self, source: str, target: Path) -> None:
        """Copy the machine's folder `source` to the new folder `target`, complete or not at all. Raises UserError."""
