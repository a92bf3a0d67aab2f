"""Job scripts of a simulated world: the real ones in a real bash, which waits for the world's answers.

A script and what it starts beside itself are chains. Each runs until it asks the world for something, waits, or ends;
only when all do, time goes on.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from simulation.world import World

_PRELUDE = Path(__file__).with_name("script.sh")
_SEPARATOR = "\x1f"
_STUCK_S = 8.0
_LONGEST_PAUSE_S = 1.5
_PR_SET_CHILD_SUBREAPER = 36


class Around(Protocol):
    """What is around a script: Slurm, which starts it, answers it and ends it."""

    def asked(self, script: Script, pid: int, words: Sequence[str], limit_s: float | None) -> None:
        """See to a call of one of Slurm's commands: `Scripts.answer` ends it, at once or later."""

    def nodes(self) -> str:
        """Return what sinfo prints of all nodes."""

    def signalled(self, script: Script, pid: int, name: str) -> None:
        """See to a signal that the script has sent to the srun that it has started as `pid`."""

    def wrote(self, script: Script, path: Path, text: str | None) -> None:
        """See what file the script has put in its place, with which text; None: removed."""

    def reached_its_end(self, script: Script) -> None:
        """End the script, which is at the step where it is to be killed."""

    def ended(self, script: Script, code: int) -> None:
        """See that the script has ended by itself."""


class StuckError(Exception):
    """A process of the simulation neither asks nor ends."""


class Chain:
    """A process of a script that runs, or waits for the answer on `link`."""

    def __init__(self, script: Script, pid: int) -> None:
        self.script, self.pid = script, pid
        self.descriptor = os.pidfd_open(pid)
        self.runs = True
        self.link: socket.socket | None = None


class Script:
    """One job script. `signals` have come since it asked last."""

    def __init__(self, name: str, number: int, folder: Path, killed_at: int | None) -> None:
        self.name, self.number, self.folder, self.killed_at = name, number, folder, killed_at
        self.pid = 0
        self.is_over = False
        self.signals: list[str] = []
        self.waits_for: int | None = None
        self.ended: list[int] = []  # its processes that have ended
        self.volatile: list[tuple[float, Path]] = []  # when files were put in their place without `sync`
        self.asks: tuple[int, int] | None = None  # its srun, and what that reads


class Scripts:
    """All scripts of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.around: Around
        self.changes: Callable[[Path], None] = lambda _path: None  # comes before a script changes what has that name
        self.by_number: dict[int, Script] = {}
        self._chains: dict[int, Chain] = {}
        self._codes: dict[int, int] = {}
        self._poll = select.poll()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._poll.register(self._listening, select.POLLIN)
        # What outlives its script is ours to wait for.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def start(
        self,
        name: str,
        copy: Path,
        folder: Path,
        environment: Mapping[str, str],
        pauses: Sequence[int] = (),
        killed_at: int | None = None,
        arguments: Sequence[str] = (),
    ) -> Script:
        """Start the job script `copy` in `folder`, and let it run until it first waits."""
        number = len(self.by_number) + 1
        script = self.by_number[number] = Script(name, number, folder, killed_at)
        stops = sorted({*pauses, *([killed_at] if killed_at else [])})
        ours = {
            "BASH_ENV": str(_PRELUDE),
            "SIM_FOLDER": str(folder),
            "SIM_PORT": str(self._listening.getsockname()[1]),
            "SIM_JOB": str(number),
            "SIM_STOPS": " ".join(map(str, stops)),
            "SIM_NOW": self._clock(),
        }
        script.pid = os.posix_spawnp("bash", ["bash", str(copy), *arguments], {**environment, **ours}, setsid=True)
        self._watch(script, script.pid)
        self._settle()
        return script

    def answer(self, script: Script, pid: int, code: int = 0, printed: str = "") -> None:
        """End the call of a chain, and let it run until it waits again. Nothing if it is gone."""
        chain = self._chains.get(pid)
        if chain is None or chain.link is None:
            return
        link, chain.link, chain.runs = chain.link, None, True
        signals: list[str] = []
        if pid == script.pid:
            script.waits_for = None
            signals, script.signals = script.signals, []
        self._reply(script, link, code, printed, signals)
        self._settle()

    def signal(self, script: Script, name: str) -> None:
        """Send a signal to the script: its trap runs once the command at hand is done; `wait` ends at once."""
        if script.is_over:
            return
        self.world.note(script.name, "gets", name)
        script.signals.append(name)
        if script.waits_for is not None:
            self.answer(script, script.pid, 143)

    def kill(self, script: Script) -> None:
        """Kill the script and everything it has started; nothing of it is left then."""
        if script.is_over:
            return
        script.is_over = True
        self._stop_reading(script)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(script.pid, signal.SIGKILL)
        for chain in [one for one in self._chains.values() if one.script is script]:
            self._forget(chain)
        self._reap()

    def close(self) -> None:
        """End every script that is left."""
        for script in self.by_number.values():
            self.kill(script)
        self._listening.close()

    def _clock(self) -> str:
        return f"{self.world.epoch + self.world.now:.6f}"

    def _watch(self, script: Script, pid: int) -> None:
        if pid not in self._chains:
            with contextlib.suppress(ProcessLookupError):
                chain = self._chains[pid] = Chain(script, pid)
                self._poll.register(chain.descriptor, select.POLLIN)

    def _forget(self, chain: Chain) -> None:
        """Return when the process has ended."""
        if not select.select([chain.descriptor], [], [], _STUCK_S)[0]:
            raise StuckError(f"process {chain.pid} was killed and does not end")
        self._poll.unregister(chain.descriptor)
        os.close(chain.descriptor)
        if chain.link is not None:
            chain.link.close()
        chain.script.ended.append(chain.pid)
        del self._chains[chain.pid]

    def _settle(self) -> None:
        """Return once every chain waits for an answer, or has ended."""
        deadline = time.monotonic() + _STUCK_S
        while any(chain.runs for chain in self._chains.values()):
            ready = {descriptor for descriptor, _ in self._poll.poll(1000)}
            if not ready and time.monotonic() > deadline:
                raise StuckError(f"processes neither ask nor end: {self._running()}")
            # Calls before ends.
            if self._listening.fileno() in ready:
                self._accept()
                continue
            for chain in [one for one in self._chains.values() if one.descriptor in ready]:
                self._chain_ended(chain)
        for script in self.by_number.values():
            if script.asks is not None:
                pid, reads = script.asks
                with contextlib.suppress(BlockingIOError):
                    for name in os.read(reads, 4096).decode().split():
                        self.around.signalled(script, pid, name)

    def read_input(self, script: Script, pid: int) -> None:
        """Read what the script writes to the srun that it has started as `pid`, which it signals in no other way."""
        self._stop_reading(script)
        with contextlib.suppress(OSError):
            script.asks = pid, os.open(f"/proc/{pid}/fd/0", os.O_RDONLY | os.O_NONBLOCK)

    def _stop_reading(self, script: Script) -> None:
        if script.asks is not None:
            os.close(script.asks[1])
            script.asks = None

    def _running(self) -> list[str]:
        return [
            f"{one.script.name} {Path(f'/proc/{one.pid}/wchan').read_text()}"
            for one in self._chains.values()
            if one.runs
        ]

    def _chain_ended(self, chain: Chain) -> None:
        script = chain.script
        self._forget(chain)
        if script.waits_for == chain.pid:
            self.world.after(0.0, lambda: self.answer(script, script.pid))
        if chain.pid != script.pid:
            return
        self._reap()
        code = os.waitstatus_to_exitcode(self._codes.pop(chain.pid))
        self.kill(script)
        self.world.note(script.name, "ends", f"with {code}")
        self.world.after(0.0, lambda: self.around.ended(script, code))

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                self._codes[ended[0]] = ended[1]

    def _accept(self) -> None:
        link, _ = self._listening.accept()
        link.settimeout(_STUCK_S)
        received = b""
        while not received.endswith(b"\n"):
            block = link.recv(65536)
            if not block:  # it was killed while it asked
                link.close()
                return
            received += block
        number, pid, beside, step, limit, folder, *words = received.decode(errors="replace")[:-1].split(_SEPARATOR)
        script = self.by_number[int(number)]
        asking = int(pid) if beside == "1" else script.pid
        if script.is_over:
            link.close()
        elif words[0] in ("mv", "rm", "mkdir"):
            self._reply(script, link, self._change_files(script, Path(folder), words))
        elif words[0] == "stat":
            self._reply(script, link, *_stat(Path(folder, words[-1]), words[2]))
        elif words[0] == "sinfo":  # at once: it runs beside its script, which may wait for an answer of its own
            self._reply(script, link, 0, self.around.nodes())
        elif words[0] == "kill":
            self._reply(script, link, self._kill(script, words[1:]))
        else:
            self._watch(script, asking)
            if int(pid) == script.pid:
                # What runs beside the script may not have asked yet.
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
                for child in map(int, children.split()):
                    self._watch(script, child)
            chain = self._chains[asking]
            if chain.link is not None:
                raise StuckError(f"{script.name} asks {words} while it waits for another answer")
            chain.link, chain.runs = link, False
            self._asked(script, asking, int(step), words, float(limit) if limit else None)

    def _reply(
        self, script: Script, link: socket.socket, code: int = 0, printed: str = "", signals: Sequence[str] = ()
    ) -> None:
        answer = _SEPARATOR.join(
            [str(code), self._clock(), ",".join(signals), " ".join(map(str, script.ended)), printed]
        )
        with contextlib.suppress(OSError):
            link.sendall(answer.encode())
        link.close()

    def _asked(self, script: Script, pid: int, step: int, words: Sequence[str], limit_s: float | None) -> None:
        world = self.world
        if words[0] == "pause" and step == script.killed_at:
            world.after(0.0, lambda: self.around.reached_its_end(script))
        elif words[0] == "pause":
            delay_s = world.random(f"pause {script.number}.{step}").uniform(0.0, _LONGEST_PAUSE_S)
            world.after(delay_s, lambda: self.answer(script, pid))
        elif words[0] == "sleep":
            world.after(float(words[1]), lambda: self.answer(script, pid))
        elif words[0] != "wait":
            self.around.asked(script, pid, words, limit_s)
        elif int(words[1]) not in self._chains:
            world.after(0.0, lambda: self.answer(script, pid))
        elif script.signals:
            world.after(0.0, lambda: self.answer(script, pid, 143))
        else:
            script.waits_for = int(words[1])

    def _kill(self, script: Script, words: Sequence[str]) -> int:
        """Do what `kill` does, to a process that the script has started."""
        name = words[0][1:] if words[0].startswith("-") else "TERM"
        chain = self._chains.get(int(words[-1]))
        if chain is None:
            return 1
        if name == "USR1":
            self.around.signalled(script, chain.pid, name)
        else:
            os.kill(chain.pid, signal.SIGKILL)
            self._chain_ended(chain)
        return 0

    def _change_files(self, script: Script, folder: Path, words: Sequence[str]) -> int:
        """Change files as mv, rm and mkdir do; return the exit code. To mv it is said which file was synced."""
        names = [folder / word for word in words[1:] if not word.startswith("-") and word]
        self.changes(names[-1])
        try:
            if words[0] == "mv":
                source, target = names[-2:]
                text = source.read_text(errors="replace").strip()
                os.replace(source, target)
                os.utime(target, (self.world.epoch + self.world.now,) * 2)
                if words[1] != source.name:
                    script.volatile.append((self.world.now, target))
                self.around.wrote(script, target, text)
            for name in names if words[0] == "mkdir" else ():
                name.mkdir(exist_ok=True)
            for name in names if words[0] == "rm" else ():
                if name.is_dir():
                    shutil.rmtree(name)
                else:
                    name.unlink(missing_ok=True)
                self.around.wrote(script, name, None)
        except OSError:
            return 1
        return 0


def _stat(file: Path, form: str) -> tuple[int, str]:
    try:
        found = file.stat()
    except OSError:
        return 1, ""
    return 0, {"%a": f"{found.st_mode & 0o7777:o}", "%s": str(found.st_size), "%Y": str(int(found.st_mtime))}[
        form
    ] + "\n"
