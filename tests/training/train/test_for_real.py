"""The main job on the real digits, as a user runs it: precisions, export, and the floor's Python and torch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.local_runs import Here


def test_what_was_trained_can_be_exported(here: Here) -> None:
    here.run("submit", "--cluster", "local", "--updates", "20", "--follow")
    here.run("export", "last", "-o", "model.safetensors")
    content = (here.project / "model.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert any(name.endswith("weight") for name in header)


def test_an_unknown_precision_is_refused_with_those_there_are(here: Here) -> None:
    output = here.run("submit", "--precision", "16.8", code=1).stderr
    assert "expected '64.64', '32.32', '16.32', '16.16' or 'bf16'" in output


def test_the_floor_trains_and_resumes(here: Here, needs: Callable[[str], Path]) -> None:
    here.cluster("floor", f"python: {needs('floor')}\n")
    asked = ("submit", "--cluster", "floor", "--instances", "2", "--epochs", "3", "--follow")
    first = here.json(*asked, "--keep-checkpoints", "9")
    assert first["state"] == "COMPLETED"
    assert first["report"]["held_out_accuracy"] >= 0.5
    log = here.run("logs", "last", "--rank", "0").stdout
    assert "engine ddp on cpu, 2 instances" in log


def test_the_floor_ends_with_the_weights_of_todays_torch(here: Here, needs: Callable[[str], Path]) -> None:
    # The order of samples, the draws and the first weights are ours: only the rounding of layers may differ.
    losses = []
    for name, python in (("floor", f"python: {needs('floor')}\n"), ("today", "")):
        here.cluster(name, python)
        asked = ("submit", "--cluster", name, "--instances", "2", "--updates", "3", "--precision", "64.64")
        ended = here.json(*asked, "--log-every", "1", "--set", "dropout=0.0", "--follow")
        losses.append(ended["report"]["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
