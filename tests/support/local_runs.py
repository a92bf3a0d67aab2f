"""Real `trainjob` processes with folders of their own, and what is left of a run in /proc."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import forked_commands
from tests.support.printed_json import reported
from tests.support.programs import TRAINJOB, ran
from tests.support.waiting import until
from trainjob.launch.witness import watching
from trainjob.machines.process import search_path

PYTHON = sys.executable
LIMIT_S = 100.0
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "STOPPED", "LOST")

# Says what a rank was told, as one line of JSON.
TELL = """\
import json, os, sys
print(json.dumps({"environ": dict(os.environ), "folder": os.getcwd(), "arguments": sys.argv[1:]}))
"""
# Attempt 1 stays until the file `release` appears in the run directory; later attempts end at once. Each rank has a
# child, a daemon that has slipped away from it, and one that has washed the run's mark off its environment.
STAY = """\
import os, pathlib, signal, subprocess, sys, time
if "--deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
run = pathlib.Path(os.environ["TRAINJOB_RUN_DIR"])
subprocess.Popen(["sleep", "301"])
subprocess.run(["bash", "-c", "setsid sleep 302 & disown"])
subprocess.run(["bash", "-c", "env -i setsid sleep 303 & echo $!"])
print("ready", flush=True)
while os.environ["TRAINJOB_ATTEMPT"] == "1" and not (run / "release").exists():
    time.sleep(0.02)
"""


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def what_follows(process: subprocess.Popen[str]) -> str:
    """Return what the process prints until its end; `communicate` would lose what `readline` has read ahead."""
    assert process.stdout is not None
    with process.stdout as stream:
        rest = stream.read()
    process.wait(LIMIT_S)
    return rest


def command_of(pid: int) -> list[str]:
    """Return the words of a process; none once it is gone or a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def is_observer(pid: int) -> bool:
    """Return whether the process is the launcher's observer, which has the launcher's command line."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == watching.NAME
    except OSError:
        return False


def marked(folder: Path) -> list[int]:
    """Return the processes whose environment holds the path of a run directory, or of a folder above it."""
    mark = f"\0TRAINJOB_RUN_DIR={folder}".encode()
    found = ((pid, b"\0" + _environ(pid) + b"\0") for pid in every_process())
    return [pid for pid, environ in found if mark + b"\0" in environ or mark + b"/" in environ]


def every_process() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def kill(pids: Iterable[int]) -> None:
    """Kill each; one may have ended with the one before it."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def oldest_first(pids: Iterable[int]) -> list[int]:
    """Sort processes by the time they began: their numbers start over at 32768 on many machines."""
    return sorted(pids, key=_began)


def _began(pid: int) -> int:
    return int((_stat(pid) or ["0"] * 20)[19])


def parent_of(pid: int) -> int:
    return int((_stat(pid) or ["", "0"])[1])


def _stat(pid: int) -> list[str]:
    """Return the fields of a process behind its name; none once it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


@dataclass(frozen=True)
class Run:
    """One run, as its files and /proc show it."""

    here: Here
    folder: Path

    @property
    def id(self) -> str:
        return self.folder.name

    def status(self) -> dict[str, Any]:
        shown: dict[str, Any] = self.here.json("status", self.id)
        return shown

    def word(self, name: str) -> str:
        return self._text(name).strip()

    def _text(self, name: str) -> str:
        """Return what a file holds; nothing where there is none: an attempt that begins removes the last one's."""
        try:
            return (self.folder / name).read_text()
        except FileNotFoundError:
            return ""

    def wait(self, state: str) -> None:
        """Wait for the state of the attempt submitted last: `resume` returns before its script begins."""
        submitted = json.loads((self.folder / "submission.json").read_text())["attempt"]
        until(lambda: int(self.word("attempt") or 0) >= submitted, f"attempt {submitted} of {self.id}")
        until(lambda: self.word("state") in {state, *ENDED}, f"{self.id} {state}")
        assert self.word("state") == state, f"{self.id} is {self.word('state')}: {self._text('failure.json')}"

    def wait_until_ready(self, ranks: int = 2) -> None:
        until(lambda: all("ready" in self.log(rank) for rank in range(ranks)), f"{self.id} ready")

    def wait_until_nothing_is_left(self) -> None:
        until(lambda: not self.processes() and not self.washed(), f"{self.id} gone")

    def log(self, rank: int) -> str:
        return self._text(f"logs/rank-{rank:04d}.log")

    def report(self, rank: int) -> dict[str, Any]:
        """Return what the script TELL has printed."""
        lines = [line for line in self.log(rank).splitlines() if line.startswith("{")]
        value: dict[str, Any] = json.loads(lines[-1])
        return value

    def processes(self) -> list[int]:
        return [pid for pid in marked(self.folder) if command_of(pid)]

    def washed(self) -> list[int]:
        """Return the daemons without a mark, whose ids the script STAY has printed."""
        printed = [int(line) for rank in (0, 1) for line in self.log(rank).splitlines() if line.isdigit()]
        return [pid for pid in printed if "303" in command_of(pid)]

    def find(self, *words: str) -> list[int]:
        """Return the run's processes, oldest first, whose command line begins so; "python" means any python."""
        return oldest_first(pid for pid in self.processes() if _begins(command_of(pid), words))

    @property
    def script(self) -> int:
        """The job script; it is waited for, because a run is submitted before setsid has become bash."""
        found: list[int] = until(lambda: self.find("bash", "job.sh"), f"the script of {self.id}")
        return found[0]

    @property
    def launchers(self) -> list[int]:
        """The guard, and below it the process that watches the ranks."""
        return [pid for pid in self.find("python3", "-m", "trainjob.launch") if not is_observer(pid)]

    def ranks(self) -> list[int]:
        return self.find("python", "my_script.py")

    def release(self) -> None:
        (self.folder / "release").touch()


def _begins(found: list[str], words: tuple[str, ...]) -> bool:
    return bool(found) and (os.path.basename(found[0]), *found[1 : len(words)]) == words


class Here:
    """A user's machine in small: data and configuration folders, and a project in git.

    `forks`: commands that are waited for are forked from a process that has imported what they need.
    """

    def __init__(self, folder: Path, *, forks: bool = False) -> None:
        self.folder = folder
        self.forks = forks
        self.patience_s = 300.0
        self.project = folder / "project"
        self.project.mkdir()
        own = {"XDG_DATA_HOME": str(folder / "data"), "XDG_CONFIG_HOME": str(folder / "config")}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRAINJOB_", "OMP_"))}
        # As an activated virtualenv has it: a user's `python x.py` runs what PATH names.
        self.environ = {**kept, **own, "PATH": search_path(), "COLUMNS": "200"}

    def write(self, name: str, text: str) -> Path:
        """Write a file of the project and have git track it."""
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if not (self.project / ".git").exists():
            self.git("init", "--quiet")
        self.git("add", name)
        return path

    def git(self, *words: str) -> None:
        who = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
        subprocess.run(["git", *who, *words], cwd=self.project, check=True, env=self.environ)

    def run(
        self, *words: str, code: int = 0, folder: str = ".", environ: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Return what `trainjob` printed; it has to exit with `code`."""
        ended = self._run(words, self.project / folder, {**self.environ, **(environ or {})})
        assert ended.returncode == code, (words, ended.returncode, ended.stdout, ended.stderr)
        return ended

    def _run(self, words: tuple[str, ...], folder: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
        if self.forks and forked_commands.can_run(environ):
            return subprocess.CompletedProcess(words, *forked_commands.run(words, folder, environ, self.patience_s))
        return ran([TRAINJOB, *words], folder=folder, environ=environ, timeout_s=self.patience_s)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start `trainjob` in a session of its own, as a terminal would."""
        return subprocess.Popen(
            [TRAINJOB, *words],
            cwd=self.project,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def json(self, *words: str, code: int = 0, folder: str = ".") -> Any:
        """Return what `trainjob … --json` printed; --json comes before a command of the user's own."""
        at = words.index("--") if "--" in words else len(words)
        return reported(self.run(*words[:at], "--json", *words[at:], code=code, folder=folder).stdout)

    def submit(self, *words: str, instances: int = 2, folder: str = ".", flags: tuple[str, ...] = ()) -> Run:
        """Hand a command over and return its run, which has begun."""
        asked = ("submit", "--cluster", "local", "--again", "--instances", str(instances), *flags, "--", *words)
        return self.at(self.json(*asked, folder=folder)["folder"])

    def follow(self, *words: str, code: int = 0, flags: tuple[str, ...] = (), folder: str = ".") -> Run:
        """Hand a command over and return its run, which has ended."""
        asked = ("submit", "--cluster", "local", "--again", "--instances", "2", "--follow", *flags, "--", *words)
        return self.at(self.json(*asked, code=code, folder=folder)["folder"])

    def at(self, folder: str) -> Run:
        return Run(self, Path(folder))

    def staying(self, *words: str) -> Run:
        """Return a run of STAY whose ranks and all that they start are there."""
        if not (self.project / "my_script.py").exists():
            self.write("my_script.py", STAY)
        run = self.submit("python", "my_script.py", *words)
        run.wait_until_ready()
        # Its id is printed before a daemon has washed the mark off.
        until(lambda: len(run.washed()) == 2 and not set(run.washed()) & set(run.processes()), "daemons without a mark")
        return run

    def cluster(self, name: str, text: str) -> None:
        folder = self.project / "clusters"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.yaml").write_text(f"kind: local\n{text}")

    def end_everything(self) -> None:
        """Leave no process behind, whatever a failed test has left."""
        runs = self.folder / "data" / "trainjob" / "runs"
        left = [pid for folder in (runs.iterdir() if runs.is_dir() else ()) for pid in self.at(str(folder)).washed()]
        kill([*marked(self.folder), *left])
