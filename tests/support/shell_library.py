"""The shell library that job scripts source, run directly in bash beside programs that stand in."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.support import ROOT
from tests.support.programs import ran

LIBRARY = ROOT / "trainjob/launch/shell"
RUNNING = "echo 'JobId=7 JobState=RUNNING Restarts=0 Reason=None PreemptTime=None '"


class ShellOutput(NamedTuple):
    code: int
    out: str
    err: str


class Bash:
    """A run directory in which lines of shell run after parts of the library have been sourced."""

    def __init__(self, folder: Path, *parts: str) -> None:
        self.folder, self.parts = folder / "run", parts
        self.programs = folder / "bin"
        for made in (self.folder / "logs", self.folder / "checkpoints", self.programs):
            made.mkdir(parents=True)
        (self.folder / "code").mkdir()
        (self.folder / "code/trainjob").symlink_to(LIBRARY.parents[1])

    def program(self, name: str, text: str) -> None:
        """Put a program on the path; each call of it is a line of its record."""
        path = self.programs / name
        path.write_text(f'#!/bin/bash\nprintf "%s\\n" "$*" >>"{self.programs}/{name}.calls"\n{text}\n')
        path.chmod(0o755)

    def calls(self, name: str) -> list[str]:
        record = self.programs / f"{name}.calls"
        return record.read_text().splitlines() if record.exists() else []

    def text(self, lines: str) -> str:
        sourced = "\n".join(f'. "{LIBRARY}/{part}.sh"' for part in self.parts)
        return f"set -euo pipefail\n{sourced}\n{lines}\n"

    def environ(self, **environment: str) -> dict[str, str]:
        return {"PATH": f"{self.programs}{os.pathsep}/usr/bin:/bin", "HOME": str(self.folder), **environment}

    def run(self, lines: str, **environment: str) -> ShellOutput:
        ended = ran(
            ["bash", "-c", self.text(lines)], folder=self.folder, environ=self.environ(**environment), timeout_s=60
        )
        return ShellOutput(ended.returncode, ended.stdout, ended.stderr)

    def start(self, lines: str, **environment: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["bash", "-c", self.text(lines)],
            cwd=self.folder,
            env=self.environ(**environment),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def word(self, name: str) -> str | None:
        path = self.folder / name
        return path.read_text().rstrip("\n") if path.exists() else None

    def write(self, name: str, text: str = "") -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)


class SlurmBash(Bash):
    """A job under Slurm: a page sources the library below its own folder, and the controller knows of job 7.

    `before` is what the page sets first, and `entry` the part of the library that it sources.
    """

    def __init__(self, folder: Path, before: str = "", entry: str = "slurm") -> None:
        super().__init__(folder, entry)
        self.before = before
        self.program("scontrol", RUNNING)
        for name in ("squeue", "sbatch", "scancel"):  # a machine's own would wait for a controller
            self.program(name, "exit 1")
        # The folder of srun stays on PATH.
        self.program("srun", 'exec "$@"')

    def text(self, lines: str) -> str:
        return f"set -euo pipefail\n{self.before}\n. code/trainjob/launch/shell/{self.parts[0]}.sh\n{lines}\n"
