"""The processes of a run on a pod's hosts: started apart from us, asked for, told to end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trainjob.contract.environment import RUN_DIR
from trainjob.submit import process
from trainjob.submit.machine import Machine

# A session of its own, so that it outlives the connection. Its start time tells it from a later one of the same number.
_START = """
cd "$1" && mkdir -p logs || exit 1
head="attempt $3 · $2 · $(hostname) · $(date -u +%Y-%m-%dT%H:%M:%SZ)"
printf -- '--- %s ---\\n' "$head" >>logs/scheduler.out
TRAINJOB_RUN_DIR=$1 setsid bash "$2" </dev/null >>logs/scheduler.out 2>&1 &
pid=$!
stat=$(cat "/proc/$pid/stat")
set -- ${stat##*) }
printf '%s %s %s\\n' "$pid" "${20}" "$(hostname)"
"""
_ASK = """
hostname
while read -r pid started; do
  stat=$(cat "/proc/$pid/stat" 2>/dev/null) || stat=') Z'
  set -- ${stat##*) }
  if [ "$1" != Z ] && [ "${20:-}" = "$started" ]; then echo alive; else echo gone; fi
done
"""
# Every process whose environment says that it belongs to the run; the job script is passed over while it has a trap.
_TELL = """
for pid in $(grep -lzxF -e "$1" /proc/[0-9]*/environ 2>/dev/null | sed 's|/proc/||; s|/environ||'); do
  if [ "$pid" != "$2" ] && [ "$pid" != $$ ]; then kill -"$3" "$pid" 2>/dev/null && echo "$pid"; fi
done
exit 0
"""


class Script(NamedTuple):
    """A job script that was started: process id, start time in clock ticks, and what its host calls itself."""

    pid: int
    started: int
    host: str


def start(machine: Machine, folder: str, script: str, attempt: int) -> Script:
    """Return the job script, which now runs by itself on `machine`. Raises UserError."""
    said = machine.run(["sh", "-c", _START, "sh", folder, script, str(attempt)]).text.split()
    if len(said) != 3:
        raise process.CommandError(f"{machine.name} was to say which process it started, and said {' '.join(said)!r}")
    return Script(int(said[0]), int(said[1]), said[2])


def running(machine: Machine, scripts: Sequence[Script]) -> list[bool | None]:
    """Return whether each script still runs; None for one that another host runs. One question for all."""
    lines = "".join(f"{script.pid} {script.started}\n" for script in scripts)
    host, *answers = machine.run(["sh", "-c", _ASK], stdin=lines.encode()).text.split()
    return [answer == "alive" if script.host == host else None for script, answer in zip(scripts, answers, strict=True)]


def signal_script(machine: Machine, script: Script) -> None:
    """Send TERM to the job script, which passes it on."""
    machine.run(["kill", "-TERM", str(script.pid)], check=False)


def tell_all(machine: Machine, folder: str, signal: str, *, but: int = 0, host: str | None = None) -> list[int]:
    """Return the processes of the run in `folder` that were sent `signal`, on `machine` or on `host`, seen from there.

    Raises UserError when the host can't be reached.
    """
    words = ["sh", "-c", _TELL, "sh", f"{RUN_DIR}={folder}", str(but), signal]
    said = machine.run(words if host is None else over_ssh(host, words)).text
    return [int(word) for word in said.split()]


def over_ssh(host: str, words: Sequence[str], timeout_s: int = 10) -> list[str]:
    """Return the command that runs `words` on `host`: without a question, and only where its key is known."""
    import shlex

    options = ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", f"ConnectTimeout={timeout_s}"]
    return ["ssh", *options, "--", host, shlex.join(words)]
