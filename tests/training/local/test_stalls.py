"""Commands and tasks of a user's own that hang."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from tests.support import SUPPORT
from tests.support.local_runs import Here

# Rank 1 hangs in a thread and in its main program; rank 0 computes.
HANGS = """\
import os, time
def waits_for_ever():
    time.sleep(1000)
if os.environ["RANK"] == "1":
    waits_for_ever()
while True:
    sum(range(1000))
"""


def test_a_rank_without_a_sign_of_life_is_named_and_all_stacks_are_kept(here: Here) -> None:
    here.write("my_script.py", HANGS)
    run = here.follow("python", "my_script.py", flags=("--stall-timeout-s", "4"), code=1)
    status = run.status()
    assert (status["state"], status["failure"]["rank"], status["cause"]["code"]) == ("FAILED", 1, "stalled")
    assert "rank 1 has shown no sign of life for " in run.log(1)
    assert "in waits_for_ever" in run.log(1)
    assert "no sign of life" not in run.log(0)
    both = here.json("stacks", run.id)
    assert [one["rank"] for one in both] == [0, 1]
    assert "waits_for_ever" not in both[0]["processes"][0]["stack"]
    assert "in waits_for_ever" in both[1]["processes"][0]["stack"]


@pytest.mark.full
def test_a_task_that_hangs_leaves_the_stacks_and_the_last_collectives_of_all_ranks(here: Here) -> None:
    here.write("hangs.py", (SUPPORT / "hanging_task.py").read_text())
    asked = ("--task", "hangs:Hangs", "--samples", "4096", "--updates", "100", "--stall-timeout-s", "12")
    here.run("submit", "--cluster", "local", "--instances", "2", "--follow", *asked, code=1)
    stacks = {one["rank"]: json.dumps(one) for one in here.json("stacks", "last")}
    assert "in loss" not in stacks[0]
    assert "in loss" in stacks[1]
    logs = Path(here.json("status", "last")["folder"]) / "logs"
    assert all(pickle.loads((logs / f"flight-record-{rank}").read_bytes())["entries"] for rank in range(2))
