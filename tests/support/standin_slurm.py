"""A Slurm of files for faults that a real one can't be made to have: its commands hang, lie, fail or babble."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import trainjob
from tests.support import ROOT
from trainjob.contract.paths import RunPaths

PROGRAMS = ("sbatch", "squeue", "scontrol", "scancel", "sacct")


class StandinSlurm:
    """A user's folder, a cluster file, and programs on PATH."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, query_timeout_s: float = 30.0) -> None:
        self.folder = folder
        self.here = folder / "here"
        (folder / "bin").mkdir(parents=True)
        (folder / "jobs").mkdir()
        for program in PROGRAMS:
            shutil.copy2(ROOT / "tests/support/standin_slurm.sh", folder / "bin" / program)
        (self.here / "clusters").mkdir(parents=True)
        cluster = {
            "kind": "slurm",
            "nodes": {"count": 2, "cpus": 8},
            "runs_dir": str(folder / "runs"),
            "python": sys.executable,
            "query_timeout_s": query_timeout_s,
        }
        (self.here / "clusters" / "hpc.yaml").write_text(json.dumps(cluster))
        patch.chdir(self.here)
        patch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))

    def break_(self, program: str, fault: str, times: int | None = None) -> None:
        """Have a program fail from now on, or that many times."""
        (self.folder / f"fault.{program}").write_text(f"{fault} {times or ''}\n")

    def mend(self) -> None:
        """Have every program work again."""
        for program in PROGRAMS:
            (self.folder / f"fault.{program}").unlink(missing_ok=True)

    def submit(self, *, again: bool = False) -> trainjob.Run:
        job = trainjob.plan("hpc", command=["true"], instances=2)
        return job.submit(check=False, again=again)

    def calls(self, program: str) -> list[str]:
        log = self.folder / f"{program}.calls"
        return log.read_text().splitlines() if log.exists() else []

    def jobs(self) -> dict[str, str]:
        """Return the state of each job by its id."""
        return {job.name: (job / "state").read_text().strip() for job in sorted((self.folder / "jobs").iterdir())}

    def alive(self) -> list[str]:
        return [job for job, state in self.jobs().items() if state in ("PENDING", "RUNNING")]

    def set_job(self, job: str, **values: str) -> None:
        for name, value in values.items():
            (self.folder / "jobs" / job / name).write_text(f"{value}\n")

    def forget(self, job: str) -> None:
        shutil.rmtree(self.folder / "jobs" / job)

    def runs(self) -> list[RunPaths]:
        folder = self.folder / "runs"
        return [RunPaths(one) for one in sorted(folder.iterdir())] if folder.exists() else []


def files_say(paths: RunPaths | Path, **words: Any) -> None:
    """Write what a job script writes: attempt, state, exit_code."""
    folder = paths.folder if isinstance(paths, RunPaths) else paths
    for name, word in words.items():
        (folder / name).write_text(f"{word}\n")
