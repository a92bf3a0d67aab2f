"""Hands a run to the pod's launch host, asks after it, ends it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from trainjob.cluster import hostlist
from trainjob.contract import job as jobs
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.contract.files import read_word
from trainjob.contract.paths import RunPaths
from trainjob.submit import machines, vipu_partitions
from trainjob.submit.base import Answer, Liveness, Native, place_of, read_submission
from trainjob.submit.machine import Machine
from trainjob.submit.poprun import processes
from trainjob.submit.poprun.processes import Script

_POLL_S = 0.2
_TRAP_S = 10.0  # the script's trap ends mpirun, removes a partition and writes two words
_KILL_S = 10.0


def argv(paths: RunPaths, script: str) -> list[str]:  # noqa: ARG001 - the Protocol's signature
    """Return the command that runs a job script on the launch host."""
    return ["bash", script]


def start(paths: RunPaths, script: str) -> Native:
    """Return which process of which host runs the job script from now on. Raises UserError."""
    machine, folder = place_of(paths)
    submission = read_submission(paths)
    attempt, remote = (submission.attempt, submission.remote) if submission else (1, None)
    if attempt > 1 and read_word(paths.state) not in states.ENDED:
        # A script that was killed could end nobody: what it had started would write beside the new ranks.
        _kill_everywhere(paths, machine, folder)
    script_there = processes.start(machine, folder, script, attempt)
    where = {"ssh": remote.host, "user": remote.user} if remote else {"ssh": None, "user": None}
    return {**script_there._asdict(), **where}


def ask(natives: Sequence[Native]) -> list[Answer]:
    """Return whether each job script still runs: one question a machine for all. A machine out of reach is UNKNOWN."""
    answers: dict[int, Answer] = {}
    for place in dict.fromkeys((native["ssh"], native["user"]) for native in natives):
        mine = [number for number, native in enumerate(natives) if (native["ssh"], native["user"]) == place]
        found = _ask_one(machines.reached(*place), [_script(natives[number]) for number in mine])
        answers.update(zip(mine, found, strict=True))
    return [answers[number] for number in range(len(natives))]


def _ask_one(machine: Machine, scripts: Sequence[Script]) -> list[Answer]:
    try:
        alive = processes.running(machine, scripts)
    except UserError as error:
        return [Answer(Liveness.UNKNOWN, note=str(error)) for _ in scripts]
    return [_answer(script, one) for script, one in zip(scripts, alive, strict=True)]


def _answer(script: Script, alive: bool | None) -> Answer:
    if alive is None:
        return Answer(Liveness.UNKNOWN, note=f"started on host {script.host}: ask there whether it still runs")
    return Answer(Liveness.ALIVE if alive else Liveness.GONE)


def _script(native: Native) -> Script:
    return Script(native["pid"], native["started"], native["host"])


def cancel(paths: RunPaths, native: Native | None, grace_s: float) -> None:
    """Ask the job script to end (tasks checkpoint), then end whatever of the run is left, on every host.

    A partition that the run made goes with it, and no other. Raises UserError, naming a host that can't be reached.
    """
    machine, folder = place_of(paths)
    if native is not None and _ended_when_asked(machine, _script(native), grace_s):
        return
    _kill_everywhere(paths, machine, folder, script=None if native is None else _script(native))
    vipu_partitions.remove_own(machine, folder, paths)


def _ended_when_asked(machine: Machine, script: Script, grace_s: float) -> bool:
    """Return whether the script has ended by itself, and so has cleaned up: asked twice, as a person would."""
    for patience_s in (grace_s, _TRAP_S):
        found = processes.running(machine, [script])[0]
        if found is None:
            raise UserError(f"the run was started on host {script.host}: log in there and cancel it")
        if not found:
            return False  # gone before it was asked: what it left is to be seen to
        processes.signal_script(machine, script)
        if _is_gone_within(machine, script, patience_s):
            return True
    return False


def _is_gone_within(machine: Machine, script: Script, limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while processes.running(machine, [script])[0]:
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _kill_everywhere(paths: RunPaths, machine: Machine, folder: str, script: Script | None = None) -> None:
    # The ranks first: the script's trap then still writes how the run ended.
    processes.tell_all(machine, folder, "KILL", but=script.pid if script else 0)
    if script is not None:
        _is_gone_within(machine, script, _TRAP_S)
    unreached = [why for host in other_hosts(paths) for why in _kill_on(machine, folder, host)]
    _kill_on(machine, folder, None)
    if unreached:
        raise UserError(
            f"processes of run {paths.id} may go on where it could not be looked: {'; '.join(unreached)}. "
            f"Cancel again when they can be reached: trainjob cancel {paths.id}"
        )


def _kill_on(machine: Machine, folder: str, host: str | None) -> Iterable[str]:
    """Return why the processes of one host could not be ended; nothing where none is left."""
    deadline = time.monotonic() + _KILL_S
    try:
        while processes.tell_all(machine, folder, "KILL", host=host):
            if time.monotonic() > deadline:
                return [f"{host or machine.name}: processes don't end, even by KILL"]
            time.sleep(_POLL_S)
    except UserError as error:
        return [f"{host or machine.name}: {error}"]
    return []


def other_hosts(paths: RunPaths) -> tuple[str, ...]:
    """Return the hosts of a run on several, by name; none where poprun had the launch host alone."""
    record = jobs.read(paths.job)
    hosts = hostlist.expand(record.plan["topology"]["hosts"])
    named = record.asked["cluster"]["file"].get("hosts") is not None
    return hosts if named and len(hosts) > 1 else ()
