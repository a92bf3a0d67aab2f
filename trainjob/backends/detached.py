"""The back end without a scheduler: a job script in a session of its own, on this machine or on one over ssh.

All its processes, on every host, carry its mark, the run directory in TRAINJOB_RUN_DIR, by which they can be ended.
"""

from __future__ import annotations

import contextlib
import os
import signal as signals
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from trainjob.backends import containers
from trainjob.backends.base import Answer, Liveness, NotSubmittedError, place_of
from trainjob.cluster import slurm_text
from trainjob.contract import clock, states
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.kinds import table
from trainjob.machines import process, processes
from trainjob.machines.access import HERE, machine_at
from trainjob.machines.machine import Machine
from trainjob.machines.processes import StartedScript
from trainjob.machines.side_by_side import side_by_side
from trainjob.machines.ssh import onward
from trainjob.records import attempts
from trainjob.records import job as jobs
from trainjob.records.job import ContractError
from trainjob.records.submission import Native, Submission

_POLL_S = 0.05
# The time for a script's trap: it ends mpirun, removes a partition and writes two words.
_TRAP_S = 10.0
_KILL_S = 10.0


HAS_SCHEDULER = False


def refuse_folder(folder: Path) -> None:
    """Raise UserError for a folder that can't identify its processes."""
    if "\n" in str(folder):
        raise UserError(f"run directory {str(folder)!r} has a line break in its path", "choose another folder")


def argv(
    paths: RunPaths,  # noqa: ARG001 - see BackEnd
    script: str,
    after: Sequence[RunPaths] = (),  # noqa: ARG001 - see BackEnd
    inside: str | None = None,  # noqa: ARG001 - see BackEnd
) -> list[str]:
    """Return the command that runs a job script."""
    return ["bash", script]


def start(paths: RunPaths, submission: Submission) -> Native:
    """Start the job script, and return its host and process. Raises UserError."""
    machine, folder = place_of(paths, submission)
    if submission.attempt > 1:
        # A killed script could not end its ranks, which would write at the same time as the new ones.
        try:
            _kill_all(paths, submission, only_here=attempts.state(paths) in states.ENDED)
        except UserError as error:
            raise NotSubmittedError(f"{error.text}, so nothing was submitted", error.cure) from None
    search_path = ""  # the machine's own, except that of ranks under `kind: local`
    if machine is HERE:
        try:
            job = jobs.read(paths.job)
            if table.recorded_cluster(job).trains_here:
                search_path = process.path_of_ranks(is_command=job.train is None)
        except ContractError:
            search_path = process.path_of_ranks(is_command=True)
    begun = processes.start(machine, folder, submission.script, submission.attempt, search_path)
    remote = submission.remote
    return {**begun._asdict(), "ssh": remote.host if remote else None, "user": remote.user if remote else None}


def start_elements(paths: RunPaths, *_: object) -> dict[int, Native]:
    """Raise UserError: without a scheduler nothing can wait its turn."""
    raise UserError(f"run {paths.id} is an array, which needs a scheduler", "submit its elements one by one")


def ask(natives: Sequence[Native]) -> list[Answer]:
    """Return whether each job script still runs, with one command on each machine."""
    answers: dict[int, Answer] = {}
    for place in dict.fromkeys(_place(native) for native in natives):
        mine = {number: _script(native) for number, native in enumerate(natives) if _place(native) == place}
        try:
            alive = processes.running(machine_at(*place), list(mine.values()))
        except UserError as error:
            answers.update(dict.fromkeys(mine, Answer(Liveness.UNKNOWN, note=str(error))))
            continue
        for (number, script), is_alive in zip(mine.items(), alive, strict=True):
            elsewhere = f"it was started on host {script.host}: log in there to see its state"
            known = Answer(Liveness.ALIVE if is_alive else Liveness.GONE)
            answers[number] = Answer(Liveness.UNKNOWN, note=elsewhere) if is_alive is None else known
    return [answers[number] for number in range(len(natives))]


def _place(native: Native) -> tuple[str | None, str | None]:
    # Absent in records of earlier versions, for runs on this machine.
    return native.get("ssh"), native.get("user")


def _script(native: Native) -> StartedScript:
    return StartedScript(native["pid"], native["started"], native["host"], native.get("folder", ""))


def look_for(paths: RunPaths, submission: Submission) -> Native | None:  # noqa: ARG001 - see BackEnd
    """Return None: a script whose start was not recorded is found by its mark when the run is resumed or cancelled."""
    return None


def identify(native: Native) -> dict[str, str]:  # noqa: ARG001 - see BackEnd
    """Return nothing: no scheduler has a name for the run."""
    return {}


def next_to(
    paths: RunPaths,
    submission: Submission,  # noqa: ARG001 - see BackEnd
    rank: int,
    words: Sequence[str],
    *,
    terminal: bool,
) -> list[str]:
    """Return `words` through ssh to the rank's host; unchanged for a run on one host."""
    hosts = hosts_of(paths)
    if not hosts:
        return list(words)
    host = hosts[rank * len(hosts) // jobs.read(paths.job).plan.topology.ranks]
    return onward.interactive(host, words, terminal=terminal)


def interrupt(native: Native) -> None:
    """Send USR1 to the job script, which passes it on to the ranks; do nothing if it has just ended."""
    processes.running(machine_at(*_place(native)), [_script(native)], signal="USR1")


def signal_ranks(paths: RunPaths, native: Native, signal: str) -> None:
    """Send a signal to the ranks on this machine, loaders' workers included, and TERM to the job script as well."""
    for pid in processes.ranks_of(str(paths.folder)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, getattr(signals, f"SIG{signal}"))
    if signal == "TERM":
        processes.running(HERE, [_script(native)], signal=signal)


def start_soon(native: Native) -> None:
    """Do nothing: there is no scheduler that holds a run back."""


def cancel(paths: RunPaths, submission: Submission, grace_s: float) -> None:
    """Ask the job script to end (ranks checkpoint), then end whatever is left of the run, on each of its hosts.

    A V-IPU partition that the run has made goes with it. Raises UserError, naming a host that can't be reached.
    """
    (machine, folder), native = place_of(paths, submission), submission.native
    script = None if native is None else _script(native)._replace(folder=folder)
    has_ended = script is not None and _ends_when_asked(paths, machine, script, grace_s)
    failed: dict[str, str] = {}
    if script is not None and not has_ended:
        # Before mpirun ends, because the other hosts then kill launchers, and processes without the mark are lost.
        beside = [host for host in hosts_of(paths) if host not in (script.host, machine.name)]
        # The script's host may have another name in the cluster file, so the script is spared everywhere.
        failed = _kill_on(paths, submission, beside, spared=script)
        # The ranks before the script, whose trap can then still record how the run ended.
        processes.kill(machine, folder, spared=script)
        _is_gone_within(machine, script, _TRAP_S)
    _kill_all(paths, submission, only_here=has_ended, failed=failed)
    containers.remove_partitions(paths, submission)


def _ends_when_asked(paths: RunPaths, machine: Machine, script: StartedScript, grace_s: float) -> bool:
    """Return whether the script has ended by itself, and so has cleaned up. It is asked twice, as a person would do."""
    for patience_s in (grace_s, min(grace_s, _TRAP_S)):
        alive = processes.running(machine, [script], signal="TERM")[0]
        if alive is None:
            raise UserError(
                f"run {paths.id} was started on host {script.host}, which is not {machine.name}",
                "log in there and cancel it",
            )
        if not alive:
            return False  # it had ended before it was asked to, perhaps without cleaning up
        if _is_gone_within(machine, script, patience_s):
            return True
    return False


def _is_gone_within(machine: Machine, script: StartedScript, limit_s: float) -> bool:
    deadline = clock.monotonic() + limit_s
    while processes.running(machine, [script])[0]:
        if clock.monotonic() > deadline:
            return False
        clock.sleep(_POLL_S)
    return True


def _kill_all(
    paths: RunPaths, submission: Submission, *, only_here: bool, failed: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Kill every process of the run on each of its hosts; `only_here`: only on the host of the job script.

    `failed`: the hosts where that has just failed, and why.
    """
    containers.remove(paths, submission)
    hosts = [] if only_here else [host for host in hosts_of(paths) if host not in failed]
    failures = [*failed.values(), *_kill_on(paths, submission, [*hosts, None]).values()]
    if failures:
        raise UserError(
            f"run {paths.id} may still have processes: {'; '.join(failures)}",
            f"Correct that, then cancel it again: trainjob cancel {paths.id}",
        )


def _kill_on(
    paths: RunPaths, submission: Submission, hosts: Sequence[str | None], spared: StartedScript | None = None
) -> dict[str, str]:
    """Kill the run's processes on these hosts (None: its machine); return why that failed, by host."""
    machine, folder = place_of(paths, submission)

    def why_some_are_left(host: str | None) -> str | None:
        deadline = clock.monotonic() + _KILL_S
        try:
            # Until none is found: a process may have forked before the signal reached it.
            while left := processes.kill(machine, folder, host=host, spared=spared):
                if clock.monotonic() > deadline:
                    named = ", ".join(map(str, left))
                    return f"processes {named} on {host or machine.name} survive KILL: they wait for a disk or a device"
                clock.sleep(_POLL_S)
        except UserError as error:
            return f"{host or machine.name}: {error}"
        return None

    answers = zip(hosts, side_by_side(why_some_are_left, hosts), strict=True)
    return {host or machine.name: why for host, why in answers if why is not None}


def hosts_of(paths: RunPaths) -> tuple[str, ...]:
    """Return the hosts of a run on several, by name; none for a run on the job script's host alone."""
    try:
        if table.recorded_cluster(jobs.read(paths.job)).host_names is None:
            return ()
    except ContractError:
        return ()
    plan = jobs.read(paths.job).plan
    hosts = [name for on in (plan.topology, *plan.servers.values()) for name in slurm_text.expand(on.hosts)]
    return tuple(hosts) if len(hosts) > 1 else ()
