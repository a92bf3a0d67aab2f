"""A run's processes on one host: starts a detached job script, watches it, and ends it with all its processes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from trainjob.contract import package
from trainjob.contract.environment import RANK, RUN_DIR
from trainjob.machines.access import HERE
from trainjob.machines.machine import Machine
from trainjob.machines.process import CommandError
from trainjob.machines.ssh import onward

_IS_RUNNING = {"alive": True, "gone": False, "elsewhere": None}


class StartedScript(NamedTuple):
    """A job script that was started: process id, start time in clock ticks since boot, and its host's own name."""

    pid: int
    started: int | None  # None: it had already ended
    host: str
    folder: str = ""  # of its run; empty in records of earlier versions


def start(machine: Machine, folder: str, script: str, attempt: int, search_path: str = "") -> StartedScript:
    """Start the job script of the run directory `folder`, detached from this process and any terminal, and return it.

    What it prints is appended to the run's scheduler log; `search_path` is its PATH, if not the machine's own. Raises
    UserError.
    """
    words = package.program_command(
        __file__, "start_script", folder, script, str(attempt), search_path, interpreter="bash"
    )
    answer = machine.run(words).text.split()
    if len(answer) != 3:
        raise CommandError(
            f"{machine.name} was asked which process runs {script} and answered {' '.join(answer)!r}",
            cure="does its shell print something of its own?",
        )
    pid, started, host = answer
    return StartedScript(int(pid), int(started) if started.isdecimal() else None, host, folder)


def running(machine: Machine, started: Sequence[StartedScript], signal: str = "") -> list[bool | None]:
    """Return whether each script still runs, with one command; None for a script that was started on another host.

    A process that runs for another folder is not the script. Those that run get `signal` (TERM, USR1), if any.
    """
    lines = "".join(f"{script.pid} {script.started} {script.host} {script.folder}\n" for script in started)
    command = package.program_command(__file__, "running_scripts", signal)
    answers = machine.run(command, stdin=os.fsencode(lines)).text.split()
    return [_IS_RUNNING[answer] for _, answer in zip(started, answers, strict=True)]


def kill(
    machine: Machine, folder: str, *, signal: str = "KILL", spared: StartedScript | None = None, host: str | None = None
) -> list[int]:
    """Send `signal` (0: none) to every process of the run in `folder` but `spared`; return those that were there.

    They are looked for on `machine`, or on `host`, which is reached from there. Raises UserError when that fails.
    """
    caller = os.getpid() if machine is HERE and host is None else 0
    command = package.program_command(
        __file__, "run_processes", f"{RUN_DIR}={folder}", signal, str(spared.pid if spared else 0), str(caller)
    )
    # Without the mark, which this command has itself if a process of the run calls us.
    words = ["env", "-u", RUN_DIR, *command]
    return [int(word) for word in onward.run(machine, host, words).text.split()]


def entering(engine: str, folder: str, rank: int, words: Sequence[str]) -> list[str]:
    """Return the command that runs `words`, or a shell, next to a rank of the run in `folder` on the rank's host.

    `engine` is docker or podman if it runs the rank's container; empty for any other rank.
    """
    return package.program_command(__file__, "enter_rank", engine, folder, str(rank), *words, interpreter="bash")


def ranks_of(folder: str) -> dict[int, int]:
    """Return the rank of every process on this machine that belongs to a rank of the run in `folder`, by process id."""
    ranks: dict[int, int] = {}
    for pid in kill(HERE, folder, signal="0"):
        try:
            with open(f"/proc/{pid}/environ", "rb") as stream:
                pairs = stream.read().split(b"\0")
        except OSError:
            continue
        ranks.update((pid, int(pair.partition(b"=")[2])) for pair in pairs if pair.startswith(f"{RANK}=".encode()))
    return ranks
