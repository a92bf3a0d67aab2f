"""Horovod under a real Slurm: one mpirun in the job script, whose ranks are on the nodes that Slurm gave."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.local_runs import Here

pytestmark = pytest.mark.timeout(900)

CLUSTER = {"kind": "slurm", "nodes": {"count": 3, "cpus": 8}, "time_limit": "00:10:00", "runs_dir": "/shared/runs"}
ASKED = ("--cluster", "hvd", "--engine", "horovod", "--instances", "2", "--hosts", "2")


@pytest.fixture
def user(needs: Callable[[str], Path], here: Here) -> Here:
    needs("slurm")
    needs("mpirun")
    here.environ["TRAINJOB_PYTHON"] = str(needs("horovod"))
    here.patience_s = 600
    here.write("clusters/hvd.yaml", json.dumps(CLUSTER))
    return here


def test_ranks_on_two_nodes_train(user: Here) -> None:
    verdict = user.json("rehearse", *ASKED, "--updates", "3", "--keep")
    assert (verdict["passed"], verdict["same_bytes"], verdict["update"]) == (True, True, 3)
    logs = sorted((Path(verdict["folder"]) / "logs").glob("rank-*.log"))
    assert [log.read_text().splitlines()[0].split(" · ")[1:3] for log in logs] == [
        [f"rank {rank} of 2", f"node{rank + 1}"] for rank in (0, 1)
    ]
    assert "engine horovod on cpu, 2 instances" in logs[0].read_text()


@pytest.mark.full
@pytest.mark.parametrize("fault", ["timeout", "cancel", "rank-death"])
def test_a_fault_has_its_stated_outcome(user: Here, fault: str) -> None:
    assert "PASSED" in user.run("rehearse", *ASKED, "--inject", fault).stdout
