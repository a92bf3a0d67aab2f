"""Commands on a host that is reached by ssh from another machine, the one on which jobs are submitted."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from trainjob.contract import package, quoting
from trainjob.contract.errors import UserError
from trainjob.machines import process
from trainjob.machines.machine import ANSWER_S, Machine
from trainjob.machines.process import Completed

_HOP = package.program(__file__, "hop.sh")
_OPTIONS = ("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=10")
# hop.sh turns ssh's exit code 255 into this, because 255 would blame the outer ssh.
FAILED = 254


def command(host: str, words: Sequence[str]) -> list[str]:
    """Return the command with which a machine runs `words` on another. It never asks, and wants a known host key."""
    return ["sh", "-c", _HOP, "sh", "ssh", "-T", *_OPTIONS, "--", host, quoting.for_any_shell(shlex.join(words))]


def interactive(host: str, words: Sequence[str], *, terminal: bool) -> list[str]:
    """Return the command with which one machine runs `words` on another with its own input and output."""
    return ["ssh", "-t" if terminal else "-T", *_OPTIONS, "--", host, quoting.for_any_shell(shlex.join(words))]


def run(machine: Machine, host: str | None, words: Sequence[str], *, check: bool = True) -> Completed:
    """Return the result of `words` on `host`, reached from `machine`, or on `machine` itself where `host` is None.

    Raises UserError when the host can't be reached, and with `check` when the command fails.
    """
    if host is None:
        return machine.run(words, check=check)
    ended = machine.run(command(host, words), timeout_s=ANSWER_S, check=False)
    if ended.code == FAILED:
        reason = (ended.stderr.strip().splitlines() or ["ssh does not say why"])[-1]
        raise UserError(f"{machine.name} can't reach it: {reason}", f"try it there: ssh {host} true")
    # The error shows the command itself, without ssh around it.
    meant = Completed(tuple(words), ended.code, ended.stdout, ended.stderr)
    if check:
        process.refuse_failure(meant)
    return meant
