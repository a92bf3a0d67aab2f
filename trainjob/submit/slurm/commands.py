"""How Slurm's commands are called, on whatever machine, and what their failures mean."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainjob.contract.errors import UserError
from trainjob.submit.machine import ANSWER_S, Machine
from trainjob.submit.process import CommandError, Completed

# A shell that nobody logs in to may lack the site's PATH. SBATCH_ variables would override the script's own lines.
_CALL = """
command -v "$1" >/dev/null 2>&1 || { . /etc/profile >/dev/null 2>&1; command -v "$1" >/dev/null 2>&1; } || exit 127
unset $(env | sed -n 's/^\\(SBATCH_[A-Za-z0-9_]*\\)=.*/\\1/p') trainjob_nothing
shift
exec "$@"
"""
_NOT_FOUND = 127
# What clients say when the controller is down, starting, or too busy to answer: none of it is about the job.
_DOWN = re.compile(
    r"Unable to contact slurm controller|Socket timed out|Zero Bytes were transmitted|Connection (refused|timed out)"
    r"|standby mode|Unable to establish con|Communication connection failure|temporarily unable|Message recei?ve fail",
    re.IGNORECASE,
)
# After these a request may have arrived and been carried out.
_LOST = re.compile(r"Socket timed out|Zero Bytes were transmitted|Message recei?ve fail", re.IGNORECASE)


class ControllerDownError(UserError):
    """Slurm's controller does not answer. `is_lost`: the request may have arrived all the same."""

    def __init__(self, message: str, *, is_lost: bool) -> None:
        super().__init__(message)
        self.is_lost = is_lost


class SlurmRefusedError(UserError):
    """Slurm has answered, and the answer is no. `said` is its own words."""

    def __init__(self, message: str, said: str) -> None:
        super().__init__(message)
        self.said = said


class SlurmMissingError(UserError):
    """There are no Slurm commands on the machine."""


def call(
    machine: Machine,
    words: Sequence[str],
    *,
    program: str | None = None,
    folder: str | None = None,
    stdin: bytes = b"",
    timeout_s: float = ANSWER_S,
) -> Completed:
    """Return what one of Slurm's commands left; `program` is its name where a shell calls it.

    Raises ControllerDownError, SlurmRefusedError, SlurmMissingError, or what the machine raises.
    """
    name = program or words[0]
    asked = ["sh", "-c", _CALL, "sh", name, *words]
    ended = machine.run(asked, folder=folder, stdin=stdin, timeout_s=timeout_s, check=False)
    if ended.code == 0:
        return ended
    raise _failure(machine, name, ended)


def _failure(machine: Machine, program: str, ended: Completed) -> UserError:
    said = ended.stderr.strip() or ended.text.strip()
    if ended.code == _NOT_FOUND and not said:
        return SlurmMissingError(
            f"{program} is not on PATH of {machine.name}: is that the login node of a Slurm cluster? Where PATH is set "
            "by a start-up file, set it in one that is read without a terminal, too"
        )
    if _DOWN.search(said):
        message = f"Slurm's controller, asked from {machine.name}, does not answer ({said.splitlines()[-1]})"
        return ControllerDownError(message, is_lost=bool(_LOST.search(said)))
    if said:
        return SlurmRefusedError(f"{program} on {machine.name} says: {said}", said)
    return CommandError(f"{program} on {machine.name} exited with {ended.code} without a word", ended)
