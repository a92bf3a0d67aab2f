"""This machine as a place where commands run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from trainjob.contract.errors import UserError
from trainjob.submit import process
from trainjob.submit.machine import ANSWER_S
from trainjob.submit.process import Completed


class ThisMachine:
    """Fits Machine; nothing is quoted, for no shell is in between."""

    name = "this machine"

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
        """Return what the command left."""
        here = None if folder is None else Path(folder).expanduser()
        return process.run(arguments, timeout_s=timeout_s, folder=here, check=check, stdin=stdin, stdout=stdout)

    def send(self, source: Path, target: str) -> None:
        """Copy a folder, beside and then moved."""
        _copy(source, Path(target).expanduser())

    def receive(self, source: str, target: Path) -> None:
        """Copy a folder, beside and then moved."""
        _copy(Path(source).expanduser(), target)


def _copy(source: Path, target: Path) -> None:
    if os.path.lexists(target):
        raise UserError(f"{target} is there already: choose another one")
    staging = target.with_name(f".{target.name}.part")
    try:
        shutil.copytree(source, staging, symlinks=True, dirs_exist_ok=True)
        staging.replace(target)
    except (OSError, shutil.Error) as error:
        shutil.rmtree(staging, ignore_errors=True)
        raise UserError(f"{source} can't be copied to {target}: {error}") from None
