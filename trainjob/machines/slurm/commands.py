"""Calls Slurm's commands on a machine, and interprets their failures."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainjob.contract import package
from trainjob.contract.errors import UserError
from trainjob.machines.machine import ANSWER_S, Machine
from trainjob.machines.process import CommandError, Completed, TimedOutError

_NOT_FOUND = 127
# The exit codes of `timeout` when it has ended a command by TERM or KILL.
_TIMED_OUT = (124, 137)
# The call may take this much longer than the command: ssh, and KILL after TERM.
MARGIN_S = 5.0
# Messages of a controller that is down, starting, or too busy to answer. They say nothing about the job.
DOWN = re.compile(
    r"Unable to contact slurm controller|Socket timed out|Zero Bytes were transmitted|Connection (refused|timed out)"
    r"|standby mode|Unable to establish con|Communication connection failure|temporarily unable|Message recei?ve fail",
    re.IGNORECASE,
)
# After these, the request may have been carried out.
LOST = re.compile(r"Socket timed out|Zero Bytes were transmitted|Message recei?ve fail", re.IGNORECASE)


class ControllerDownError(UserError):
    """Slurm's controller does not answer. `is_lost`: the request may have arrived nevertheless."""

    code = "controller-down"
    is_out_of_reach = True

    def __init__(self, message: str, *, is_lost: bool) -> None:
        super().__init__(message)
        self.is_lost = is_lost


class SlurmRefusedError(UserError):
    """Slurm has refused the request. `reply` is all that it printed, `output` the part on standard output."""

    code = "slurm-refused"

    def __init__(self, message: str, reply: str, output: str = "") -> None:
        super().__init__(message)
        self.reply = reply
        self.output = output


# Slurm is installed, but configured for no cluster: the usual state of a laptop.
_NO_CLUSTER = re.compile(
    r"Could not establish a configuration source|Unable to open.*slurm\.conf|DNS SRV lookup failed"
)
_LOGIN_NODE = (
    "Give the login node in the cluster file (ssh: {host: LOGIN}), or run trainjob there. If that is done, and a "
    "start-up file there adds Slurm to PATH only for terminals, add it in one that every shell reads"
)


class SlurmMissingError(UserError):
    """The machine has no Slurm commands, or none that belong to a cluster."""

    code = "slurm-missing"


def call(
    machine: Machine,
    words: Sequence[str],
    *,
    program: str | None = None,
    folder: str | None = None,
    stdin: bytes = b"",
    timeout_s: float = ANSWER_S,
) -> Completed:
    """Return the result of one of Slurm's commands; `program` is its name where a shell calls it.

    It may take `timeout_s`.

    Raises ControllerDownError, SlurmRefusedError, SlurmMissingError, or what the machine raises.
    """
    name = program or words[0]
    silence = ControllerDownError(f"{name} on {machine.name} did not answer within {timeout_s:g} s", is_lost=True)
    command = package.program_command(__file__, "call", f"{timeout_s:g}", name, *words)
    try:
        ended = machine.run(command, folder=folder, stdin=stdin, timeout_s=timeout_s + MARGIN_S, check=False)
    except TimedOutError:
        raise silence from None
    if ended.code == 0:
        return ended
    if ended.code in _TIMED_OUT and not DOWN.search(ended.stderr):
        raise silence
    raise _failure(machine, name, ended)


def endless(words: Sequence[str]) -> list[str]:
    """Return the command that runs one of Slurm's commands for as long as it takes, with our own input and output."""
    return package.program_command(__file__, "call", "", words[0], *words)


def _failure(machine: Machine, program: str, ended: Completed) -> UserError:
    reply = ended.stderr.strip() or ended.text.strip()
    if ended.code == _NOT_FOUND and not reply:
        return SlurmMissingError(
            f"{program} is not on PATH of {machine.name}: is that the login node of a Slurm cluster?",
            _LOGIN_NODE,
        )
    if _NO_CLUSTER.search(reply):
        return SlurmMissingError(
            f"{program} on {machine.name} belongs to no cluster ({reply.splitlines()[-1]})", _LOGIN_NODE
        )
    if DOWN.search(reply):
        message = f"Slurm's controller, asked from {machine.name}, does not answer ({reply.splitlines()[-1]})"
        return ControllerDownError(message, is_lost=bool(LOST.search(reply)))
    if reply:
        return SlurmRefusedError(f"{program} on {machine.name} says: {reply}", reply, ended.text)
    return CommandError(f"{program} on {machine.name} exited with {ended.code} and printed nothing", ended)
