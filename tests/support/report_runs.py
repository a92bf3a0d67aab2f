"""Run directories that a report is made of."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from tests.support.records import record
from trainjob.contract.paths import RunPaths
from trainjob.observe.report import page
from trainjob.observe.report.report import report
from trainjob.observe.report.series import Series
from trainjob.records import submission as submissions

HOSTILE = "<script>alert(1)</script>&\"'"


def described(folder: Path, *, name: str = "digits", updates: int = 60, **job: Any) -> page.Described:
    """Return a run with `updates` logged; `job` is what was requested."""
    folder.mkdir()
    paths = RunPaths(folder)
    written = record(2, name=name)
    request = dataclasses.replace(written.request, job={"instances": 2, **job}, origins={"instances": "flag"})
    paths.job.write_text(dataclasses.replace(written, request=request).to_json())
    paths.job_script.write_text(f"echo {HOSTILE}\n")
    paths.metrics.write_text("\n".join(_lines(updates)))
    checkpoint = paths.checkpoints / "update-00000060"
    checkpoint.mkdir(parents=True)
    files = {"model.safetensors": {"bytes": 2_000_000, "sha256": "ab" * 32}}
    (checkpoint / "index.json").write_text(json.dumps({"update": 60, "files": files}))
    curves = Series()
    return page.Described(
        paths, report(paths, submissions.read(paths), curves), [("training loss", "1.0")], [("cluster", name)], curves
    )


def _lines(updates: int) -> list[str]:
    seconds = {"data": 0.1, "compute": 0.2, "communication": 0.1, "checkpoint": 0.0}
    training = {"kind": "train", "samples_per_s": 90.0, "learning_rate": 0.1, "seconds": seconds, "epoch": 1}
    return [
        *(
            json.dumps({**training, "attempt": 1 + (update > 30), "update": update, "loss": 1 / update})
            for update in range(10, updates + 1, 10)
        ),
        json.dumps({"kind": "evaluation", "attempt": 1, "epoch": 1, "update": updates, "loss": 0.5, "accuracy": 0.9}),
    ]
