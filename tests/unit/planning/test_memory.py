"""What one device holds, and which changes to a job make it fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trainjob.planning.memory import GB, Layout, memory, rows, what_fits
from trainjob.records.measures import MemoryFigures

FIGURES = MemoryFigures(
    parameters=2 * GB,
    weights=8 * GB,
    gradients=8 * GB,
    optimizer=16 * GB,
    gathered=GB,
    units=["blocks.0", "blocks.1", "blocks.2", "blocks.3"],
    activations=40 * GB,
    recomputed=4 * GB,
)
LAYOUT = Layout("ddp", instances=4, micro_batch=8)


@pytest.mark.parametrize(
    ("changes", "total_gb"),
    [
        ({}, 8 + 8 + 16 + 40),
        ({"recompute": True}, 8 + 8 + 16 + 4),
        ({"engine": "fsdp"}, 2 + 2 + 4 + 2 + 40),
        ({"engine": "fsdp", "shard_group": 2}, 4 + 4 + 8 + 2 + 40),
        ({"engine": "fsdp", "offload": True}, 2 + 40),
        ({"micro_batch": 2}, 8 + 8 + 16 + 10),
    ],
)
def test_what_a_device_holds(changes: dict[str, Any], total_gb: int) -> None:
    assert memory(FIGURES, 8, replace(LAYOUT, **changes)).total == total_gb * GB


@pytest.mark.parametrize(
    ("limit_gb", "offers"),
    [
        (60, ["--recompute", "--micro-batch 4", "--engine fsdp --instances 4"]),
        (46, ["--recompute", "--micro-batch 2", "--engine fsdp --instances 8"]),
        (37, ["--recompute", "--micro-batch 1"]),
        (20, ["--engine fsdp --instances 8 --recompute"]),
        (8, []),
    ],
)
def test_every_offer_alone_makes_the_job_fit(limit_gb: int, offers: list[str]) -> None:
    assert what_fits(FIGURES, LAYOUT, 8, limit_gb) == offers


def test_the_rows_of_a_plan() -> None:
    shown = dict(rows(FIGURES, replace(LAYOUT, engine="fsdp"), 80))
    assert shown["units"] == "4: blocks.0, blocks.1, blocks.2 … blocks.3"
    assert shown["weights per device"] == "2.0 GB = 8.0 GB ÷ 4 instances"
    assert shown["memory per device"] == "50.0 GB of 80 GB"
    unknown = dict(rows(replace(FIGURES, activations=None, why="no data set"), LAYOUT, None))
    assert unknown["activations per device"] == "not known here: no data set"
    assert unknown["memory per device"] == "at least 32.0 GB"
