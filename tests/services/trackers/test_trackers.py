"""What `export` hands to TensorBoard, read back by it."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import ran
from tests.support.records import record
from trainjob.contract.paths import RunPaths

ROOT = Path(__file__).parents[3]
READER = Path(__file__).with_name("read_back.py")
PHASES = {"data": 0.5, "compute": 1.0, "communication": 0.5, "checkpoint": 0.0}
SETTINGS = {"learning_rate": 0.5, "env": {"API_TOKEN": "hidden-token", "COLOR": "a|b <b>"}}

Python = Callable[..., str]


@pytest.fixture
def python(needs: Callable[[str], Path], tmp_path: Path) -> Python:
    """What runs the interpreter that has TensorBoard, and returns what it prints."""
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}

    def run(*words: str) -> str:
        command = [str(needs("trackers")), *words]
        ended = ran(command, environ={**os.environ, **home}, timeout_s=100, code=0)
        assert "hidden-token" not in ended.stdout
        return ended.stdout

    return run


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    """A run of two attempts, which has not ended: the second trained update 30 again."""
    paths = RunPaths(tmp_path / "k3xq-digits")
    paths.folder.mkdir()
    written = record(2, name="digits")
    paths.job.write_text(
        dataclasses.replace(written, request=dataclasses.replace(written.request, job=SETTINGS)).to_json()
    )
    log(paths, *(line("train", 1, update, loss=1 / update) for update in (10, 20, 30)))
    return paths


def line(kind: str, attempt: int, update: int, **more: Any) -> dict[str, Any]:
    own = {"seconds": PHASES, "metrics": {"top 5 (%)": 0.5}} if kind == "train" else {"seconds": 1.5}
    return {"kind": kind, "attempt": attempt, "epoch": 1, "update": update, "accuracy": None, **own, **more}


def log(paths: RunPaths, *lines: dict[str, Any]) -> None:
    with paths.metrics.open("a") as stream:
        stream.writelines(json.dumps(one) + "\n" for one in lines)


def log_the_second_attempt(paths: RunPaths) -> None:
    log(paths, line("train", 2, 30, loss=0.25), line("evaluation", 2, 30, loss=0.75, accuracy=0.9))
    log(paths, {"kind": "end", "attempt": 2, "epoch": 1, "update": 30, "training_seconds": 9.0})
    paths.attempt.write_text("2\n")
    paths.state.write_text("COMPLETED\n")


def exported(python: Python, paths: RunPaths, *options: str) -> list[int]:
    text = python("-m", "trainjob.cli.main", "export", str(paths.folder), *options, "--json")
    return [one["lines"] for one in json.loads(text)["exported"]]


def test_tensorboard_reads_settings_and_curves_and_each_export_adds_what_is_new(
    python: Python, run: RunPaths, tmp_path: Path
) -> None:
    place = str(tmp_path / "tb")
    assert exported(python, run, "--tensorboard", place) == [3]
    log_the_second_attempt(run)
    assert exported(python, run, "--tensorboard", place) == [2]
    files = sorted((tmp_path / "tb/k3xq-digits").iterdir())
    assert exported(python, run, "--tensorboard", place) == [0]
    assert sorted((tmp_path / "tb/k3xq-digits").iterdir()) == files

    seen = json.loads(python(str(READER), place))["k3xq-digits"]
    assert seen["curves"]["train/loss"] == [[10, pytest.approx(0.1)], [20, pytest.approx(0.05)], [30, 0.25]]
    assert seen["curves"]["evaluation/accuracy"] == [[30, pytest.approx(0.9)]]
    assert seen["curves"]["train/seconds_compute"][-1] == [30, 1.0]
    assert seen["curves"]["train/top 5 (%)"][-1] == [30, 0.5]
    assert seen["settings"]["learning_rate"] == 0.5
    assert seen["settings"]["instances"] == 2
    assert "env.API_TOKEN" not in seen["settings"]
    assert "| env.COLOR | a&#124;b &#60;b&#62; |" in seen["text"]
    assert f"| run directory | {run.folder} |".replace("_", "&#95;") in seen["text"]
    assert seen["texts"] == 2
