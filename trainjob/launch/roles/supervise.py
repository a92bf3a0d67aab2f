"""Starts servers, then what needs them, and sees to it that a job ends as the rules of its roles say."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from trainjob.contract import clock, environment, exits, roles
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.contract.roles import JobRole
from trainjob.launch import host, processes
from trainjob.launch.ranks.guard import PASSED_ON, WATCHED, in_child
from trainjob.launch.roles import ready, rules
from trainjob.records import job_facts
from trainjob.records import roles as role_records
from trainjob.records.failure import Failure, record_first, tail_of_attempt
from trainjob.records.files import remove_if_there
from trainjob.records.roles import RoleRecord

_LOOK_S = 0.2  # while something is about to change
_IDLE_S = 2.0
_SCHEDULER_S = 10.0
# A server that was told to end: it answers requests, and has no checkpoint to write.
_SERVER_GRACE_S = 10.0


@dataclass(eq=False)
class _Part(rules.RoleFacts):
    """A role, and its process if it runs. `server` is None for what needs the servers."""

    words: List[str] = field(default_factory=list)
    server: Optional[JobRole] = None
    host: str = ""
    port: int = 0
    process: "Optional[subprocess.Popen[bytes]]" = None  # kept, so that nothing else reaps it
    starts: int = 0
    was_ready: bool = False

    @property
    def address(self) -> str:
        """Where others reach it."""
        return "%s:%d" % (self.host, self.port)

    @property
    def is_step(self) -> bool:
        """Whether srun starts it: a step of the job, to which signals go through Slurm."""
        return os.path.basename(self.words[0]) == "srun"

    def tell(self, number: int) -> None:
        """Send a signal to its process, if it runs."""
        if self.process is not None and self.runs:
            os.kill(self.process.pid, number)


def _of_server(server: JobRole, host: str, words: List[str]) -> _Part:
    limit_s = server.ready_timeout_s
    return _Part(server.name, server.needs, ready_timeout_s=limit_s, words=words, server=server, host=host)


class Supervision:
    """Runs the roles of one job to their end. Raises UserError if the job's record does not name these servers.

    `places` has for each server the host where it is reached, and the words that start it.
    """

    def __init__(
        self, paths: RunPaths, places: Mapping[str, Tuple[str, List[str]]], command: List[str], grace_s: float
    ) -> None:
        parsed = roles.parse(job_facts.read(paths.job).roles)
        listed = [server.name for server in parsed.servers]
        if list(places) != listed or not command:
            raise UserError(
                "the job script starts servers %s, and %s has %s"
                % (", ".join(places) or "none", paths.job, ", ".join(listed) or "none"),
                "submit the job again",
            )
        self._paths, self._grace_s = paths, grace_s
        self.attempt = int(os.environ.get(environment.ATTEMPT, "1"))
        self._main = _Part(parsed.main.name, parsed.main.needs, words=command)
        self._servers = [_of_server(server, *places[server.name]) for server in parsed.servers]
        self._is_told = self._is_asked = False
        self._parent = 0

    def run(self) -> int:
        """Return the job's code, once nothing that was started here is left."""
        self._parent = os.getppid()
        processes.adopt_orphans()
        try:
            while True:
                now = clock.monotonic()
                what, part, why = rules.decide(self._servers, self._main, self._is_told, self._grace_s, now)
                if why:
                    sys.stderr.write("trainjob: %s\n" % why)
                if what == rules.WAIT:
                    self._wait()
                elif what == rules.START:
                    self._start(part)
                elif what == rules.END:
                    part.is_ending = True
                    self._ask_to_end([part])
                elif what == rules.FAIL:
                    return self._failed(part, why)
                else:
                    self._end(self._servers)
                    return 128 + signal.SIGTERM if part.code is None else part.code
        except OSError as error:
            sys.stderr.write("trainjob: the roles of this job can't run: %s\n" % error)
            return exits.USER_OR_CLUSTER_CAN_FIX
        finally:
            processes.kill_children()

    # -- starting and watching ----------------------------------------------------------------

    def _start(self, part: _Part) -> None:
        environ, server = dict(os.environ), part.server
        if server is not None:
            seed, place = "%s %d %s" % (self._paths.folder, self.attempt, part.name), self._paths.of_role(part.name)
            if not part.was_ready:  # else the others know its address
                part.port = ready.port_on(part.host, "%s %d" % (seed, part.starts))
            environ[environment.MASTER_ADDR] = part.host
            environ[environment.MASTER_PORT] = str(ready.port_on(part.host, seed + " ranks"))
            role_records.begin(place, self.attempt)
            if server.ready.startswith(roles.FILE):
                remove_if_there(place.folder / server.ready[len(roles.FILE) :])
            part.restarts_left = server.restarts - part.starts
        environ.update({roles.variable(one.name): one.address for one in self._servers if one.port})
        part.starts, part.since, part.code = part.starts + 1, clock.monotonic(), None
        part.is_ready = part.is_ending = part.from_outside = False
        try:
            part.process = subprocess.Popen(
                part.words,
                env=environ,
                # What a job script asks of its own ranks comes by their input.
                stdin=None if server is None else subprocess.DEVNULL,
                # A launcher handles USR1 once it can: until then it must not end that.
                preexec_fn=lambda: in_child(usr1=signal.SIG_IGN),  # noqa: PLW1509 - this process has one thread
            )
            part.runs = True
        except OSError as error:
            sys.stderr.write("trainjob: can't start %s: %s\n" % (part.words[0], error.strerror))
            part.code = exits.of_no_start(error)
        self._note(part, role_records.STARTING)

    def _wait(self) -> None:
        """Return once something may have changed."""
        changes = self._is_asked or any(part.code is not None or not part.is_ready for part in self._servers)
        received = signal.sigtimedwait(WATCHED, _LOOK_S if changes else _IDLE_S)
        self._reap()
        number = None if received is None else PASSED_ON.get(signal.Signals(received.si_signo))
        if number == signal.SIGTERM:
            self._tell()
        self._is_asked = self._is_asked or number == signal.SIGUSR1
        # The launcher ignores the signal until it can handle it. Slurm's steps are asked by their input.
        main = self._main.process if self._main.runs and not self._main.is_step else None
        if self._is_asked and main is not None and not processes.ignores(main.pid, signal.SIGUSR1):
            self._main.tell(signal.SIGUSR1)
            self._is_asked = False
        for part in self._servers:
            if part.server is not None and part.runs and not part.is_ready and not part.is_ending:
                folder = self._paths.of_role(part.name).folder
                part.is_ready = ready.is_ready(part.server.ready, part.host, part.port, folder)
                if part.is_ready:
                    part.was_ready, took_s = True, clock.monotonic() - part.since
                    text = "trainjob: role %s is ready at %s after %.1f s\n" % (part.name, part.address, took_s)
                    sys.stderr.write(text)
                    self._note(part, role_records.READY)

    def _tell(self) -> None:
        """Pass TERM on to what needs the servers, which live until that has ended. Slurm tells its steps by itself."""
        self._is_told = True
        if os.getppid() != self._parent:  # nobody is left who would end this process otherwise
            self._main.runs, self._main.code = False, 128 + signal.SIGTERM
        elif not self._main.is_step:
            self._main.tell(signal.SIGTERM)

    def _reap(self) -> None:
        ended = processes.reap()
        for part in [*self._servers, self._main]:
            if part.process is None or part.process.pid not in ended or not part.runs:
                continue
            part.process.returncode = ended[part.process.pid].returncode
            part.code = exits.from_wait_status(part.process.returncode)
            part.runs, part.since, part.is_ready = False, clock.monotonic(), False
            place = self._paths.of_role(part.name)
            has_recorded = place.end_mark(self.attempt, 0).exists() and not place.terminated(self.attempt).exists()
            part.from_outside = part.is_step and not part.is_ending and not has_recorded
            self._note(part, role_records.ENDED)

    def _note(self, part: _Part, state: str) -> None:
        if part.server is None:
            return
        record = RoleRecord(self.attempt, state, part.address, part.starts, clock.time(), part.code)
        try:
            role_records.write(self._paths.of_role(part.name), record)
        except OSError as error:  # a full disk must not end the job
            sys.stderr.write("trainjob: how role %s is can't be recorded: %s\n" % (part.name, error.strerror))

    # -- ending -------------------------------------------------------------------------------

    def _failed(self, part: _Part, why: str) -> int:
        """Record that a server has failed the job, end all, and return the job's code."""
        code, had_marker = part.code or exits.USER_OR_CLUSTER_CAN_FIX, self._paths.requeue.exists()
        self._note(part, role_records.FAILED)
        failure = Failure(
            attempt=self.attempt,
            rank=0,
            host=part.host or host.own_name(),
            exit_code=code,
            command=list(part.server.command if part.server else part.words),
            tail=tail_of_attempt(self._paths.of_role(part.name).rank_log(0)),
            step="role %s" % part.name,
            why=why,
        )
        try:
            record_first(self._paths, failure)
        except OSError as error:
            sys.stderr.write("trainjob: failure.json can't be written: %s\n" % error)
        self._end([self._main])
        self._end(self._servers)
        if not had_marker:
            remove_if_there(self._paths.requeue)  # ranks that are ended leave it, and the run has failed
        return code

    def _ask_to_end(self, parts: Sequence[_Part]) -> None:
        """Tell those of these roles that run to end. Each tells its processes."""
        in_steps = _steps() if any(part.runs and part.is_step for part in parts) else {}
        for part in parts:
            if part.runs and part.is_step and part.name in in_steps:
                _scheduler("scancel", "--signal=TERM", in_steps[part.name])
            else:
                part.tell(signal.SIGTERM)  # srun ends its step at once

    def _end(self, parts: Sequence[_Part]) -> None:
        """End these roles by TERM, and by KILL what does not end by that."""
        self._ask_to_end(parts)
        wait_s = self._grace_s if self._main in parts else min(self._grace_s, _SERVER_GRACE_S)
        deadline = clock.monotonic() + wait_s
        self._until_ended(parts, deadline)
        steps = [part for part in parts if part.is_step]
        for part in steps:
            part.tell(signal.SIGTERM)  # srun, which ends its step by KILL
        self._until_ended(steps, deadline + _SCHEDULER_S)

    def _until_ended(self, parts: Sequence[_Part], deadline: float) -> None:
        while any(part.runs for part in parts) and clock.monotonic() < deadline:
            signal.sigtimedwait(WATCHED, _LOOK_S)
            self._reap()


def _steps() -> Dict[str, str]:
    """Return the newest step of this job by each name, as scancel takes it; none if nobody answers."""
    job = os.environ.get("SLURM_JOB_ID", "")
    lines = _scheduler("squeue", "--steps", "--noheader", "--jobs=" + job, "--format=%j|%i").splitlines()
    return dict(line.strip().rpartition("|")[::2] for line in lines)


def _scheduler(*words: str) -> str:
    """Return what a command of Slurm's prints; nothing if it fails, or takes too long."""
    try:
        ended = subprocess.run(
            words, check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=_SCHEDULER_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stdout.decode("utf-8", "replace")
