"""Run directories written by hand, as each state leaves them."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

from trainjob.contract.paths import RunPaths
from trainjob.runs import index

HOST = socket.gethostname()
GONE = {"pid": 1 << 22, "started": 1, "host": HOST}  # above the kernel's largest process id
ALIVE = {"pid": os.getpid(), "started": 0, "host": HOST}


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
    job = {"contract": 1, "name": run_id, "asked": {}, "plan": {"topology": {"instances": 2}}, "train": None}
    paths.job.write_text(json.dumps({**job, "command": ["true"]}))
    paths.submission.write_text(json.dumps(submission(native, submitted_at, **more)))
    if state is not None:
        paths.attempt.write_text("1\n")
        paths.state.write_text(state + "\n")
    index.add(paths)
    return paths


def submission(native: dict[str, Any] | None, submitted_at: str, **more: Any) -> dict[str, Any]:
    fixed = {"backend": "local", "cluster": "local", "argv": ["bash", "job.sh"], "script": "job.sh", "digest": ""}
    return {**fixed, "native": native, "submitted_at": submitted_at, "attempt": 1, "project": {}, **more}
