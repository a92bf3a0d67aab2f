"""Runs of `trainjob verify` on the tasks of wrong_tasks.py."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from local_runs import TRAINJOB, Here

_MICRO_BATCH = ("--micro-batch", "4")


def verify(here: Here, *words: str, code: int = 0, limit_s: float = 110) -> Any:
    """Return what `trainjob verify --json` printed; it has to exit with `code`."""
    command = [TRAINJOB, "verify", "--json", *words]
    ended = subprocess.run(command, cwd=here.project, env=here.environ, capture_output=True, text=True, timeout=limit_s)
    assert ended.returncode == code, (words, ended.returncode, ended.stdout, ended.stderr)
    return json.loads(ended.stdout)


def verify_task(here: Here, task: str, *words: str, code: int = 0, limit_s: float = 110) -> Any:
    """Return the verdict on one of the tasks of wrong_tasks.py, over a whole epoch."""
    here.write("wrong_tasks.py", Path(__file__).with_name("wrong_tasks.py").read_text())
    size = () if "--micro-batch" in words else _MICRO_BATCH
    updates = () if "--updates" in words else ("--updates", "4")
    asked = ("--task", f"wrong_tasks:{task}", "--samples", "32", *size, *updates, *words)
    return verify(here, *asked, code=code, limit_s=limit_s)


def runs_left(here: Here) -> list[str]:
    folder = here.folder / "data" / "trainjob" / "runs"
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
