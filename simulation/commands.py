"""Commands of trainjob that run in this process, each in a thread, one at a time.

A command is stopped at each call of another program, each sleep, and before each change of a file, which Python's audit
hooks tell. One that is killed there changes nothing any more, whatever its `finally` would do.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import platformdirs

from simulation.storage import Storage
from simulation.world import World
from trainjob.backends import folder as run_folder
from trainjob.contract import clock, package
from trainjob.contract.errors import UserError
from trainjob.machines import process
from trainjob.machines.process import CommandError, Completed

# A real process id is below 2**22.
_FIRST_PID = 5_000_000
_REMOVES = {"os.remove", "os.rmdir"}
_CHANGES = {"os.rename", "os.link", "os.symlink", "os.mkdir", *_REMOVES}
_CACHE = platformdirs.user_cache_dir("trainjob")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT

Answer = tuple[float, "Completed | Exception"]
# The command that has the turn, by thread: the world's own thread has none.
_turn = threading.local()
_worlds: list[Clients] = []


class Killed(BaseException):
    """The command was killed: whatever it tries to do from now on."""


class Command:
    """One command. `killed_at`, `full_at` and `pauses` count its changes of files and its calls."""

    def __init__(
        self,
        clients: Clients,
        name: str,
        host: str,
        work: Callable[[], object],
        killed_at: int | None = None,
        full_at: frozenset[int] = frozenset(),
        pauses: dict[int, float] | None = None,
    ) -> None:
        self.clients, self.name, self.host = clients, name, host
        self.pid = _FIRST_PID + len(clients.commands)
        self.killed_at, self.full_at, self.pauses = killed_at, full_at, pauses or {}
        self.count = 0
        self.is_killed = False
        self.is_over = False
        self.result: object = None
        self.error: BaseException | None = None
        self.calls = 0  # of the controller
        self.began_at = clients.world.now
        self.ended_at: float | None = None
        self._mine, self._theirs = threading.Semaphore(0), threading.Semaphore(0)
        self._asked: tuple[Any, ...] | None = None
        self._given: object = None
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)

    def start(self) -> None:
        """Let it run to its first stop."""
        self._thread.start()
        self._resume(None)

    def _run(self, work: Callable[[], object]) -> None:
        self._mine.acquire()
        _turn.command = self
        world = self.clients.world
        off_s = round(clock.time() - world.epoch - world.now)
        world.note(self.name, "begins", f"on {self.host}{f', whose clock is {off_s:+} s off' if off_s else ''}")
        try:
            self.result = work()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - the checker looks at it
            self.error = error
        self.is_over = True
        self._theirs.release()

    def _resume(self, given: object) -> None:
        """Let it run to its next stop, and see to what it waits for there."""
        world = self.clients.world
        self._given = given
        self._mine.release()
        self._theirs.acquire()
        asked, self._asked = self._asked, None
        if self.is_over:
            self.ended_at = world.now
            if self.is_killed:
                world.note(self.name, "killed", f"at its step {self.count}")
            elif isinstance(self.error, UserError):
                world.note(self.name, "refused", str(self.error))
            else:
                world.note(self.name, "ends", self.error or _shown(self.result))
            self.clients.ended(self)
            return
        if asked is not None and asked[0] == "sleep":
            world.after(asked[1], lambda: self._resume(None))
        elif asked is not None:
            delay_s, answer = self.clients.answer(self, *asked[1:])
            world.after(delay_s, lambda: self._resume(answer))

    # In the command's own thread.

    def ask(self, *asked: object) -> object:
        """Give the turn back, and return what the world answers."""
        self._refuse_killed()
        self._asked = asked
        self._theirs.release()
        self._mine.acquire()
        self._refuse_killed()
        return self._given

    def _refuse_killed(self) -> None:
        if self.is_killed:
            raise Killed

    def step(self, *, needs_space: bool) -> None:
        """Count a step; the command may be killed here, wait, or find the disk full."""
        self._refuse_killed()
        self.count += 1
        if self.count == self.killed_at:
            self.is_killed = True
            raise Killed
        if self.count in self.pauses:
            self.ask("sleep", self.pauses[self.count])
        if needs_space and self.count in self.full_at:
            self.clients.world.note(self.name, "finds the disk full")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _shown(result: object) -> str:
    state = getattr(result, "state", None)
    if state is not None:
        note = getattr(result, "note", None)
        return f"{state}{f' ({note})' if note else ''}"
    if isinstance(result, list):
        return ", ".join(map(_shown, result))
    return "" if result is None else str(result)


class Clients:
    """The commands of one world, and what they find in the place of clock, processes and scheduler."""

    def __init__(
        self,
        world: World,
        storage: Storage,
        answer: Callable[[Command, Sequence[str], float, Path | None], Answer],
    ) -> None:
        self.world, self.storage, self.answer = world, storage, answer
        self.commands: list[Command] = []
        self.clocks: dict[str, float] = {}  # by host: seconds that its clock is ahead
        self.ended: Callable[[Command], None] = lambda _command: None

    def start(self, name: str, host: str, work: Callable[[], object], **faults: Any) -> Command:
        """Start a command, which runs until it first waits."""
        command = Command(self, name, host, work, **faults)
        self.commands.append(command)
        command.start()
        return command

    @contextlib.contextmanager
    def instead_of_the_real(self) -> Iterator[None]:
        """Inside, all of trainjob in this process is in this world."""
        patches: list[tuple[object, str, object]] = [
            (clock, "time", self._time),
            (clock, "monotonic", lambda: self.world.now),
            (clock, "sleep", _sleep),
            (os, "getpid", _getpid),
            (os, "kill", self._kill),
            (os, "symlink", self._symlink),
            (socket, "gethostname", _gethostname),
            (process, "run", _run_program),
            (concurrent.futures, "ThreadPoolExecutor", lambda **_: _OneAfterTheOther()),
            (run_folder, "_copy_runtime", _copy_shell_library),
            (secrets, "choice", self.world.random("names").choice),
            (secrets, "token_hex", _tokens(self.world)),
        ]
        real = [(place, name, getattr(place, name)) for place, name, _ in patches]
        for place, name, ours in patches:
            setattr(place, name, ours)
        _worlds.append(self)
        try:
            with self.storage.shown_to(_host):
                yield
        finally:
            _worlds.pop()
            for place, name, theirs in real:
                setattr(place, name, theirs)

    def _time(self) -> float:
        command = getattr(_turn, "command", None)
        ahead = self.clocks.get(command.host if command else "", 0.0)
        return self.world.epoch + self.world.now + ahead

    def _symlink(self, target: Any, link: Any, *more: Any) -> None:
        _real_symlink(target, link, *more)
        os.utime(link, (self._time(), self._time()), follow_symlinks=False)  # the index reads its links' ages

    def _kill(self, pid: int, number: int) -> None:
        alive = [one for one in self.commands if one.pid == pid and not one.is_over]
        if pid < _FIRST_PID:
            _real_kill(pid, number)
        elif not alive:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))


_real_kill = os.kill
_real_symlink = os.symlink
_real_getpid = os.getpid
_real_gethostname = socket.gethostname


def _current() -> Command | None:
    return getattr(_turn, "command", None)


def _host() -> str | None:
    command = _current()
    return None if command is None else command.host


def _sleep(seconds: float) -> None:
    command = _current()
    if command is not None:
        command.step(needs_space=False)
        command.ask("sleep", seconds)


def _getpid() -> int:
    command = _current()
    return _real_getpid() if command is None else command.pid


def _gethostname() -> str:
    command = _current()
    return _real_gethostname() if command is None else command.host


def _run_program(
    arguments: Sequence[str], *, timeout_s: float = 60.0, folder: Path | None = None, check: bool = True, **_: object
) -> Completed:
    command = _current()
    if command is None:
        raise CommandError(f"nobody is there to run {arguments[0]}")
    command.step(needs_space=False)
    answer = command.ask("run", arguments, timeout_s, folder)
    if isinstance(answer, Exception):
        raise answer
    if not isinstance(answer, Completed):
        raise TypeError(answer)
    if check:
        process.refuse_failure(answer)
    return answer


def _tokens(world: World) -> Callable[[int], str]:
    stream = world.random("tokens")
    return lambda size: stream.randbytes(size).hex()


def _copy_shell_library(target: Path) -> None:
    """Copy what job scripts source: the ranks of this world need no runtime."""
    for below in (target, target / "launch", target / "launch/shell"):
        below.mkdir(mode=0o755)
    for file in sorted((package.folder() / "launch/shell").glob("*.sh")):
        (target / "launch/shell" / file.name).write_bytes(file.read_bytes())


class _OneAfterTheOther(Executor):
    """A ThreadPoolExecutor whose work is done when it is submitted: threads of a command's own have no turn."""

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(work(*arguments, **named))
        return done


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not _worlds:
        return
    command, storage = _current(), _worlds[-1].storage
    if command is None or command.is_over or storage.is_looking:
        return
    is_change = event in _CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES)
    # Each file of the copied code is one more step alike, and compiled templates are kept where there is none yet.
    if is_change and "/code/" not in str(arguments[0]) and not str(arguments[0]).startswith(_CACHE):
        command.step(needs_space=event not in _REMOVES)
    for path in arguments[:2] if is_change else ():
        if isinstance(path, str):
            storage.changes(path, command.host)


sys.addaudithook(_audit)
