"""Engine ipu on a pod's launch host over a real sshd: followed, stopped, and resumed to the same end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pod_site import PodSite, pod_site
from waiting import until

pytestmark = pytest.mark.timeout(500)
# An IPU keeps what its optimizer has gathered: without momentum nothing is lost.
JOB = ("--task", "slow_task:Slow", "--samples", "256", "--micro-batch", "4", "--device-iterations", "2")
PLAIN = ("--optimizer", "sgd", "--momentum", "0", "--updates", "24", "--checkpoint-every", "8", "--seed", "3")


@pytest.fixture
def site(tmp_path: Path, needs: Callable[[str], Path]) -> Iterator[PodSite]:
    needs("mpirun")
    with pod_site(tmp_path, needs("sshd")) as made:
        made.brings_poptorch()
        made.cluster(ipus=4)
        made.write("slow_task.py", (Path(__file__).parent / "slow_task.py").read_text())
        yield made


def asked(*more: str) -> tuple[str, ...]:
    return ("submit", "--cluster", "pod", "--again", "--instances", "2", "--replicas", "4", *JOB, *PLAIN, *more)


def weights(site: PodSite, run: str) -> Any:
    index = json.loads((site.there(run) / "checkpoints" / "update-00000024" / "index.json").read_text())
    return index["files"]["model.safetensors"]


def test_a_stopped_run_goes_on_to_the_same_end(site: PodSite) -> None:
    slow = site.json(*asked("--env", "PAUSE_S=0.08"))["id"]
    logs = site.start_trainjob("logs", slow, "--follow")
    one_rank = site.start_trainjob("logs", slow, "--rank", "1", "--follow")
    until(lambda: (site.json("status", slow)["update"] or 0) >= 2, "some updates")
    site.trainjob("cancel", slow, "--stop")
    until(lambda: site.state(slow) != "RUNNING", "its end")
    assert site.state(slow) == "STOPPED"
    said, rank_said = (process.communicate(timeout=120)[0] for process in (logs, one_rank))
    assert (logs.returncode, one_rank.returncode) == (0, 0)
    assert "[poprun] " in said
    assert "[0] task slow_task:Slow, engine ipu on 4 replicas, 2 instances, from the beginning" in said
    assert rank_said == (site.there(slow) / "logs" / "rank-0001.log").read_text()
    stopped_at = site.json("status", slow)["update"]
    assert stopped_at < 24

    followed = site.trainjob("resume", slow, "--follow")
    assert "COMPLETED" in followed.stdout
    now = site.json("status", slow)
    assert (now["state"], now["attempt"], now["update"]) == ("COMPLETED", 2, 24)
    everything = site.trainjob("logs", slow, "--rank", "0").stdout
    assert f"from the checkpoint of update {stopped_at} to update 24" in everything, everything
    assert site.partitions() == {}

    whole = site.trainjob(*asked("--follow")).stdout.split()[1]
    assert weights(site, slow) == weights(site, whole)
