"""Real `trainjob` processes with folders of their own, and what is left of a run in /proc."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from waiting import until

PYTHON = sys.executable
TRAINJOB = str(Path(PYTHON).parent / "trainjob")
LIMIT_S = 20.0
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


def marked(folder: Path) -> list[int]:
    """Return the processes whose environment holds the path of a run directory, or of a folder above it."""
    mark = f"TRAINJOB_RUN_DIR={folder}".encode()
    return [pid for pid in every_process() if mark in _environ(pid)]


def every_process() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


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
        return self.here.json("status", self.id)

    def word(self, name: str) -> str:
        path = self.folder / name
        return path.read_text().strip() if path.exists() else ""

    def wait(self, state: str) -> None:
        until(lambda: self.word("state") == state, f"{self.id} {state}")

    def wait_until_ready(self, ranks: int = 2) -> None:
        until(lambda: all("ready" in self.log(rank) for rank in range(ranks)), f"{self.id} ready")

    def wait_until_nothing_is_left(self) -> None:
        until(lambda: not self.processes() and not self.washed(), f"{self.id} gone")

    def log(self, rank: int) -> str:
        path = self.folder / "logs" / f"rank-{rank:04d}.log"
        return path.read_text() if path.exists() else ""

    def told(self, rank: int) -> dict[str, Any]:
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
        return sorted(pid for pid in self.processes() if _begins(command_of(pid), words))

    @property
    def script(self) -> int:
        return self.find("bash", "job.sh")[0]

    @property
    def launchers(self) -> list[int]:
        """The guard, and below it the process that watches the ranks."""
        return self.find("python3", "-m", "trainjob.train.launch")

    def ranks(self) -> list[int]:
        return self.find("python", "my_script.py")

    def release(self) -> None:
        (self.folder / "release").touch()


def _begins(found: list[str], words: tuple[str, ...]) -> bool:
    return bool(found) and (os.path.basename(found[0]), *found[1 : len(words)]) == words


class Here:
    """A user's machine in small: data and configuration folders, and a project in git."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()
        own = {"XDG_DATA_HOME": str(folder / "data"), "XDG_CONFIG_HOME": str(folder / "config")}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRAINJOB_", "OMP_"))}
        self.environ = {**kept, **own, "PATH": os.environ["PATH"], "COLUMNS": "200"}

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
        ended = subprocess.run(
            [TRAINJOB, *words],
            cwd=self.project / folder,
            env={**self.environ, **(environ or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=150,
        )
        assert ended.returncode == code, (words, ended.returncode, ended.stdout, ended.stderr)
        return ended

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
        return json.loads(self.run(*words[:at], "--json", *words[at:], code=code, folder=folder).stdout)

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
        return run

    def cluster(self, name: str, text: str) -> None:
        folder = self.project / "clusters"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.yaml").write_text(f"kind: local\n{text}")

    def end_everything(self) -> None:
        """Leave no process behind, whatever a failed test has left."""
        runs = self.folder / "data" / "trainjob" / "runs"
        left = [pid for folder in (runs.iterdir() if runs.is_dir() else ()) for pid in self.at(str(folder)).washed()]
        for pid in [*marked(self.folder), *left]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
