"""Run directories written by hand, as each state leaves them."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.records import record
from trainjob.contract.paths import RunPaths
from trainjob.machines import processes
from trainjob.machines.machine import Machine
from trainjob.machines.processes import StartedScript
from trainjob.observe import index
from trainjob.records import submission as submissions
from trainjob.records.submission import Submission

HOST = socket.gethostname()
GONE: dict[str, Any] = {"pid": 1 << 22, "started": 1, "host": HOST}  # above the kernel's largest process id
ALIVE: dict[str, Any] = {"pid": 4321, "started": 1234, "host": HOST}


def only_one_is_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the job script ALIVE be the one that runs on this host, without asking the system."""

    def running(_: Machine, scripts: Sequence[StartedScript], signal: str = "") -> list[bool | None]:
        return [script[:3] == tuple(ALIVE.values()) if script.host == HOST else None for script in scripts]

    monkeypatch.setattr(processes, "running", running)


def made(
    folder: Path,
    run_id: str,
    *,
    state: str | None = "COMPLETED",
    native: dict[str, Any] | None = GONE,
    submitted_at: str = "2026-01-01T00:00:00+00:00",
    **more: Any,
) -> RunPaths:
    """Return a run in the index whose files say so; `more` are fields of submission.json."""
    paths = RunPaths(folder / run_id)
    paths.logs.mkdir(parents=True)
    paths.job.write_text(record(2, name=run_id, command=["true"]).to_json())
    paths.submission.write_text(json.dumps(submission(native, submitted_at, **more)))
    if state is not None:
        paths.attempt.write_text("1\n")
        paths.state.write_text(state + "\n")
    index.add(paths)
    return paths


def submission(native: dict[str, Any] | None, submitted_at: str, **more: Any) -> dict[str, Any]:
    fixed = {"backend": "detached", "cluster": "local", "argv": ["bash", "job.sh"], "script": "job.sh", "digest": ""}
    return {**fixed, "native": native, "submitted_at": submitted_at, "attempt": 1, "project": {}, **more}


def made_element(paths: RunPaths, number: int, state: str) -> RunPaths:
    """Return an element of an array whose files say so."""
    element = paths.of_element(number)
    element.folder.mkdir(parents=True)
    element.job.write_text(record(command=["true"]).to_json())
    element.attempt.write_text("1\n")
    element.state.write_text(state + "\n")
    return element


def recorded(paths: RunPaths) -> Submission:
    """Return what submission.json says."""
    found = submissions.read(paths)
    assert found is not None
    return found
