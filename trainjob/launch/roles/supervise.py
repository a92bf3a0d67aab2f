"""Starts servers, then what needs them, and sees to it that a job ends as the rules of its roles say."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import Dict, List, NamedTuple, Optional, Sequence

from trainjob.contract import clock, environment, exits, roles
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.contract.roles import Server
from trainjob.launch import host, processes
from trainjob.launch.ranks.guard import PASSED_ON, WATCHED, in_child
from trainjob.launch.roles import ready, rules
from trainjob.launch.roles.rules import Action, RoleFacts
from trainjob.records import job as jobs
from trainjob.records import roles as role_records
from trainjob.records.failure import Failure, record_first, tail_of_attempt
from trainjob.records.files import remove_if_there
from trainjob.records.roles import RoleRecord

_LOOK_S = 0.2  # while something is about to change
_IDLE_S = 2.0
_SCHEDULER_S = 10.0
# A server that was told to end: it answers requests, and has no checkpoint to write.
_SERVER_GRACE_S = 10.0


class Place(NamedTuple):
    """Where a server is reached, and the words that start it."""

    name: str
    host: str
    words: List[str]


@dataclass(eq=False)
class _Part:
    """A role, and its process if it runs. `role` is None for what needs the servers."""

    name: str
    needs: Sequence[str]
    words: List[str]
    role: Optional[Server] = None
    host: str = ""
    port: int = 0
    process: "Optional[subprocess.Popen[bytes]]" = None
    code: Optional[int] = None
    starts: int = 0
    since: float = 0.0
    is_ready: bool = False
    was_ready: bool = False
    is_ending: bool = False
    from_outside: bool = False

    @property
    def is_step(self) -> bool:
        """Whether srun starts it: a step of the job, to which signals go through Slurm."""
        return os.path.basename(self.words[0]) == "srun"

    def facts(self) -> RoleFacts:
        return RoleFacts(
            self.name,
            tuple(self.needs),
            is_main=self.role is None,
            runs=self.process is not None,
            is_ready=self.is_ready,
            is_ending=self.is_ending,
            code=self.code,
            from_outside=self.from_outside,
            for_s=clock.monotonic() - self.since,
            ready_timeout_s=self.role.ready_timeout_s if self.role else 0.0,
            restarts_left=self.role.restarts + 1 - self.starts if self.role else 0,
        )


class Supervision:
    """Runs the roles of one job to their end. Raises UserError if the job's record does not name these servers."""

    def __init__(self, paths: RunPaths, places: Sequence[Place], command: List[str], grace_s: float) -> None:
        parsed = roles.parse(jobs.read(paths.job).request.job.get("roles", {}))
        listed = [role.name for role in parsed.servers]
        if [place.name for place in places] != listed or not command:
            raise UserError(
                "the job script starts servers %s, and %s has %s"
                % (", ".join(place.name for place in places) or "none", paths.job, ", ".join(listed) or "none"),
                "submit the job again",
            )
        self._paths, self._grace_s = paths, grace_s
        self.attempt = int(os.environ.get(environment.ATTEMPT, "1"))
        self._main = _Part(parsed.main, parsed.needs, command)
        self._servers = [
            _Part(role.name, role.needs, place.words, role, place.host) for role, place in zip(parsed.servers, places)
        ]
        self._is_told = self._is_asked = False
        self._parent = 0

    @property
    def _parts(self) -> List[_Part]:
        return [*self._servers, self._main]

    def run(self) -> int:
        """Return the job's code, once nothing that was started here is left."""
        self._parent = os.getppid()
        processes.adopt_orphans()
        try:
            while True:
                action = rules.decide([part.facts() for part in self._parts], self._is_told, self._grace_s)
                if action.why:
                    sys.stderr.write("trainjob: %s\n" % action.why)
                part = next((one for one in self._parts if one.name == action.role), self._main)
                if action.what == rules.WAIT:
                    self._wait()
                elif action.what in (rules.START, rules.RESTART):
                    self._start(part)
                elif action.what == rules.END:
                    part.is_ending = True
                    self._ask_to_end([part])
                elif action.what == rules.FAIL:
                    return self._failed(part, action)
                else:
                    self._end(self._servers)
                    return 128 + signal.SIGTERM if self._main.code is None else self._main.code
        except OSError as error:
            sys.stderr.write("trainjob: the roles of this job can't run: %s\n" % error)
            return exits.USER_OR_CLUSTER_CAN_FIX
        finally:
            processes.kill_children()

    # -- starting and watching ----------------------------------------------------------------

    def _start(self, part: _Part) -> None:
        environ = dict(os.environ)
        if part.role is not None:
            seed = "%s %d %s" % (self._paths.folder, self.attempt, part.name)
            if not part.was_ready:  # else the others know its address
                part.port = ready.port_on(part.host, "%s %d" % (seed, part.starts))
            environ[environment.MASTER_ADDR] = part.host
            environ[environment.MASTER_PORT] = str(ready.port_on(part.host, seed + " ranks"))
            place = self._paths.of_role(part.name)
            role_records.begin(place, self.attempt)
            if part.role.ready.startswith(roles.FILE):
                remove_if_there(place.folder / part.role.ready[len(roles.FILE) :])
        for server in self._servers:
            if server.port:
                environ[roles.variable(server.name)] = "%s:%d" % (server.host, server.port)
        part.starts, part.since, part.code, part.is_ready = part.starts + 1, clock.monotonic(), None, False
        part.is_ending = part.from_outside = False
        try:
            part.process = subprocess.Popen(
                part.words,
                env=environ,
                # What a job script asks of its own ranks comes by their input.
                stdin=None if part.role is None else subprocess.DEVNULL,
                # A launcher handles USR1 once it can: until then it must not end that.
                preexec_fn=lambda: in_child(usr1=signal.SIG_IGN),  # noqa: PLW1509 - this process has one thread
            )
        except OSError as error:
            sys.stderr.write("trainjob: can't start %s: %s\n" % (part.words[0], error.strerror))
            part.code = exits.of_no_start(error)
        self._note(part, role_records.STARTING)

    def _wait(self) -> None:
        """Return once something may have changed."""
        changes = any(part.process is not None and not part.is_ready for part in self._servers)
        changes = changes or self._is_asked or any(part.code is not None for part in self._servers)
        received = signal.sigtimedwait(WATCHED, _LOOK_S if changes else _IDLE_S)
        self._reap()
        number = None if received is None else PASSED_ON.get(signal.Signals(received.si_signo))
        if number == signal.SIGTERM:
            self._tell()
        self._is_asked = self._is_asked or number == signal.SIGUSR1
        main = self._main.process
        # Its launcher ignores the signal until it can handle it. Slurm's steps are asked by their input.
        is_asking = self._is_asked and not self._main.is_step
        if is_asking and main is not None and not processes.ignores(main.pid, signal.SIGUSR1):
            os.kill(main.pid, signal.SIGUSR1)
            self._is_asked = False
        for part in self._servers:
            if part.process is not None and not part.is_ready and not part.is_ending and part.role is not None:
                place = self._paths.of_role(part.name)
                part.is_ready = ready.is_ready(part.role.ready, part.host, part.port, place.folder)
                if part.is_ready:
                    part.was_ready = True
                    took_s = clock.monotonic() - part.since
                    text = "trainjob: role %s is ready at %s:%d after %.1f s\n"
                    sys.stderr.write(text % (part.name, part.host, part.port, took_s))
                    self._note(part, role_records.READY)

    def _tell(self) -> None:
        """Pass TERM on to what needs the servers, which live until that has ended. Slurm tells its steps by itself."""
        self._is_told = True
        if os.getppid() != self._parent:  # nobody is left who would end this process otherwise
            self._main.process, self._main.code = None, 128 + signal.SIGTERM
        elif self._main.process is not None and not self._main.is_step:
            os.kill(self._main.process.pid, signal.SIGTERM)

    def _reap(self) -> None:
        ended = processes.reap()
        for part in self._parts:
            if part.process is None or part.process.pid not in ended:
                continue
            part.process.returncode = ended[part.process.pid].returncode
            part.code = exits.from_wait_status(part.process.returncode)
            part.process, part.since, part.is_ready = None, clock.monotonic(), False
            place = self._paths.of_role(part.name)
            if part.role is not None:
                has_mark = place.end_mark(self.attempt, 0).exists()
                was_told = place.terminated(self.attempt).exists()
                part.from_outside = part.is_step and not part.is_ending and (was_told or not has_mark)
                self._note(part, role_records.ENDED)

    def _note(self, part: _Part, state: str) -> None:
        if part.role is None:
            return
        address = "%s:%d" % (part.host, part.port)
        record = RoleRecord(self.attempt, state, address, part.starts, clock.time(), part.code)
        try:
            role_records.write(self._paths.of_role(part.name), record)
        except OSError as error:  # a full disk must not end the job
            sys.stderr.write("trainjob: how role %s is can't be recorded: %s\n" % (part.name, error.strerror))

    # -- ending -------------------------------------------------------------------------------

    def _failed(self, part: _Part, action: Action) -> int:
        """Record that a server has failed the job, end all, and return the job's code."""
        place, code = self._paths.of_role(part.name), part.code or exits.USER_OR_CLUSTER_CAN_FIX
        self._note(part, role_records.FAILED)
        failure = Failure(
            attempt=self.attempt,
            rank=0,
            host=part.host or host.own_name(),
            exit_code=code,
            command=list(part.role.command if part.role else part.words),
            tail=tail_of_attempt(place.rank_log(0)),
            step="role %s" % part.name,
            why=action.why,
        )
        had_marker = self._paths.requeue.exists()
        try:
            record_first(self._paths, failure)
        except OSError as error:
            sys.stderr.write("trainjob: failure.json can't be written: %s\n" % error)
        self._end([self._main])
        self._end(self._servers)
        if not had_marker:
            remove_if_there(self._paths.requeue)  # ranks that are ended leave it, and the run has failed
        return code

    def _ask_to_end(self, parts: Sequence[_Part]) -> List[_Part]:
        """Tell those of these roles that run to end, and return them. Each tells its processes."""
        told = [part for part in parts if part.process is not None]
        steps = [part for part in told if part.is_step]
        in_steps = _steps([part.name for part in steps]) if steps else {}
        for part in told:
            if part.name in in_steps:
                _scheduler("scancel", "--signal=TERM", in_steps[part.name])
            elif part.process is not None:
                os.kill(part.process.pid, signal.SIGTERM)  # srun ends its step at once
        return told

    def _end(self, parts: Sequence[_Part]) -> None:
        """End these roles by TERM, and by KILL what does not end by that."""
        told = self._ask_to_end(parts)
        wait_s = self._grace_s if self._main in parts else min(self._grace_s, _SERVER_GRACE_S)
        deadline = clock.monotonic() + wait_s
        self._until_ended(told, deadline)
        steps = [part for part in told if part.is_step]
        for part in steps:
            if part.process is not None:
                os.kill(part.process.pid, signal.SIGTERM)  # srun, which ends its step by KILL
        self._until_ended(steps, deadline + _SCHEDULER_S)

    def _until_ended(self, parts: Sequence[_Part], deadline: float) -> None:
        while any(part.process is not None for part in parts) and clock.monotonic() < deadline:
            signal.sigtimedwait(WATCHED, _LOOK_S)
            self._reap()


def _steps(names: Sequence[str]) -> Dict[str, str]:
    """Return the newest step of this job by each of these names, as scancel takes it; none if nobody answers."""
    job = os.environ.get("SLURM_JOB_ID", "")
    found: Dict[str, str] = {}
    for line in _scheduler("squeue", "--steps", "--noheader", "--jobs=" + job, "--format=%i|%j").splitlines():
        step, _, name = line.strip().partition("|")
        if name in names:
            found[name] = step
    return found


def _scheduler(*words: str) -> str:
    """Return what a command of Slurm's prints; nothing if it fails, or takes too long."""
    try:
        ended = subprocess.run(
            words, check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=_SCHEDULER_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stdout.decode("utf-8", "replace")
