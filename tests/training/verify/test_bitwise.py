"""trainjob verify --bitwise: every bit of the weights on 1 to N instances, and what it says of a task that cheats."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.local_runs import Here

# Its gradients depend on how many ranks there are, by less than a float64 comparison would mind.
CHEAT = """
import os
from trainjob.train.tasks.ffnet_toy import FfnetToy

class Cheat(FfnetToy):
    def loss(self, outputs, targets):
        return super().loss(outputs, targets) * (1 + 1e-6 * int(os.environ["WORLD_SIZE"]))
"""


def verified(here: Here, *words: str, code: int = 0) -> Any:
    return here.json("verify", "--bitwise", *words, code=code)


def test_three_instances_end_with_the_bits_of_one(here: Here) -> None:
    verdict = verified(here, "--instances", "3", "--task", "ffnet-toy", "--updates", "3")
    assert verdict["equal"]
    assert [(one["instances"], one["accumulation"]) for one in verdict["trained"]] == [(1, 3), (3, 1)]
    assert len({one["weights"] for one in verdict["trained"]}) == 1


def test_a_task_that_depends_on_the_number_of_ranks_is_found_out(here: Here) -> None:
    here.write("cheat.py", CHEAT)
    verdict = verified(here, "--instances", "2", "--task", "cheat:Cheat", "--samples", "4096", "--updates", "2", code=1)
    assert not verdict["equal"]
    assert [one["first_apart"] for one in verdict["trained"]] == [None, 1]


def test_an_engine_without_a_fixed_order_is_refused(here: Here) -> None:
    refused = here.run("verify", "--bitwise", "--resume", code=2).stderr
    assert "two comparisons" in refused
    averaging = ("--engine", "parameter-averaging", "--instances", "2")
    assert "Take --engine ddp or naive" in here.run("plan", "--sum-order", "fixed", *averaging, code=1).stderr
    sharded = here.run("verify", "--bitwise", "--engine", "fsdp", "--instances", "2", code=1).stderr
    assert "engine is fsdp, sum_order is fixed. Take --engine ddp or naive" in sharded


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("task", ["digits-cnn", "ffnet-toy", "cifar10-resnet50"])
@pytest.mark.parametrize("accumulation", [3, 6])
def test_twelve_combinations(here: Here, task: str, accumulation: int) -> None:
    """1, 2, 3, 4, 6 and 8 instances, with 24 and with 48 micro batches."""
    here.patience_s = 900
    data = ("--data", "synthetic", "--micro-batch", "2") if task.startswith("cifar") else ()
    words = ("--instances", "8", "--accumulation", str(accumulation), "--task", task, "--updates", "2", *data)
    verdict = verified(here, *words)
    assert verdict["equal"], verdict
    assert [one["instances"] for one in verdict["trained"]] == [1, 2, 3, 4, 6, 8]
