"""Arrays packed into one job of whole nodes, under a real Slurm."""

from __future__ import annotations

import json
import sys

import pytest

from tests.support.slurm_site import WAIT_S, Site
from tests.support.waiting import until
from trainjob.contract.paths import RunPaths

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("no_stand_ins")]
TELL = """\
import json, os, sys, time
began = time.time()
time.sleep(float(sys.argv[1]))
words = {name: os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "SLURMD_NODENAME", "SLURM_ARRAY_TASK_ID")}
print(json.dumps({"began": began, "ended": time.time(), "cpus": len(os.sched_getaffinity(0)), **words}))
"""


@pytest.fixture
def packs(cluster: Site) -> Site:
    gpus = {"count": 2, "cpus": 8, "memory_gb": 16, "accelerator": "gpu", "accelerators": 4}
    for name in ("here", "far"):
        cluster.write_cluster(name, ssh=name == "far", nodes=gpus, node_check=False)
    (cluster.here / "tell.py").write_text(TELL)
    return cluster


def states(cluster: Site, run: str) -> list[str]:
    return [task["state"] for task in cluster.json("status", run)["tasks"]]


def test_first(packs: Site) -> None:
    run = packs.submit("here", "--pack", "2", "--array", "0-11", "--instances", "1", "--", sys.executable, "tell.py", "2")
    import time
    for _ in range(60):
        now = packs.json("status", run)
        print(now["state"], now["note"])
        if now["state"] not in ("PENDING", "RUNNING"):
            break
        time.sleep(3)
    import subprocess
    print(subprocess.run(f"cd {packs.runs / run}; cat logs/scheduler.out; tail -n 100 tasks/[0-3]/logs/*; tail -n 5 tasks/*/events; cat events", shell=True, capture_output=True, text=True).stdout)
    assert now["state"] == "COMPLETED"
