"""Arrays packed into one job of whole nodes, under a real Slurm: two nodes of four stand-in GPUs each."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from tests.support.slurm_site import WAIT_S, Site
from tests.support.waiting import until
from trainjob.contract.paths import RunPaths
from trainjob.records import events
from trainjob.rehearse.slurm import faults

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("no_stand_ins")]
# Says where and when it runs. It stays until `go` is there, or as long as its argument says; told to end, it says so.
TELL = """\
import json, os, pathlib, signal, sys, time
began = time.time()
go = pathlib.Path(sys.argv[1])
print("at work", flush=True)
while not go.exists() and not sys.argv[1].isdigit():
    time.sleep(0.1)
if sys.argv[1].isdigit():
    time.sleep(int(sys.argv[1]))
where = [os.environ["SLURMD_NODENAME"], os.environ["CUDA_VISIBLE_DEVICES"]]
cpus = len(os.sched_getaffinity(0))
own = os.environ["SLURM_ARRAY_TASK_ID"]
print(json.dumps({"where": where, "cpus": cpus, "element": own, "began": began, "ended": time.time()}))
"""


@pytest.fixture
def packs(cluster: Site) -> Site:
    gpus = {"count": 2, "cpus": 8, "memory_gb": 16, "accelerator": "gpu", "accelerators": 4}
    for name in ("here", "far"):
        cluster.write_cluster(name, ssh=name == "far", nodes=gpus, node_check=False)
    (cluster.here / "tell.py").write_text(TELL)
    cluster.run("scontrol", "update", "NodeName=node[1-2]", "State=RESUME")
    return cluster


def submitted(packs: Site, *words: str, place: str = "here", array: str = "0-11", nodes: int = 2) -> str:
    asked = ("--pack", str(nodes), "--array", array, "--instances", "1", "--", "python", "tell.py", *words)
    return packs.submit(place, *asked)


def states(cluster: Site, run: str) -> list[str]:
    return [task["state"] for task in cluster.json("status", run)["tasks"]]


def attempts_of(cluster: Site, run: str) -> list[int]:
    return [task["attempt"] for task in cluster.json("status", run)["tasks"]]


def told(packs: Site, run: str) -> list[dict[str, Any]]:
    logs = sorted((packs.runs / run).glob("tasks/*/logs/rank-0000.log"))
    return [json.loads(log.read_text().splitlines()[-1]) for log in logs]


def test_an_option_that_srun_refuses_costs_the_elements_and_no_node(packs: Site) -> None:
    gpus = {"count": 2, "cpus": 8, "memory_gb": 16, "accelerator": "gpu", "accelerators": 4}
    packs.write_cluster("odd", nodes=gpus, node_check=False, srun={"cpu-bind": "nonsense"})
    run = submitted(packs, "0", place="odd", array="0-3")
    until(lambda: states(packs, run) == ["FAILED"] * 4, "the end of all elements", WAIT_S)
    assert not list((packs.runs / run).glob("tasks/*/excluded_nodes"))
    assert attempts_of(packs, run) == [1] * 4


def at_work(packs: Site, run: str, count: int) -> None:
    def is_so() -> bool:
        logs = (packs.runs / run).glob("tasks/*/logs/rank-0000.log")
        return sum("at work" in log.read_text() for log in logs) == count

    until(is_so, f"{count} elements at work", WAIT_S)


def everything(packs: Site, run: str) -> str:
    logs = [packs.runs / run / "logs/scheduler.out", *(packs.runs / run).glob("tasks/*/logs/scheduler.out")]
    return "\n".join(f"== {log}\n{log.read_text()[-2000:]}" for log in logs)


def jobs(packs: Site) -> list[str]:
    return packs.run("squeue", "--noheader", "--format=%A").out.split()


def ended(packs: Site, run: str) -> None:
    until(lambda: not jobs(packs), "the job to leave the queue", WAIT_S)
    assert states(packs, run), run


@pytest.mark.parametrize("place", ["here", pytest.param("far", marks=pytest.mark.full)])
def test_elements_share_two_nodes_and_each_has_a_gpu_of_its_own(packs: Site, place: str) -> None:
    run = submitted(packs, "1", place=place)
    packs.wait(run, "COMPLETED")
    found = told(packs, run)
    assert sorted(int(one["element"]) for one in found) == list(range(12))
    assert {one["cpus"] for one in found} == {2}
    assert len({str(one["where"]) for one in found}) == 8
    for where in {str(one["where"]) for one in found}:
        here = sorted((one["began"], one["ended"]) for one in found if str(one["where"]) == where)
        assert all(before[1] <= after[0] for before, after in pairwise(here)), here
    assert attempts_of(packs, run) == [1] * 12
    shown = packs.json("status", f"{run}:3")
    assert (shown["state"], shown["name"]) == ("COMPLETED", "tell"), shown


def test_a_dead_node_costs_only_its_elements_which_start_again_on_the_other(packs: Site) -> None:
    go = packs.folder / "go-dead"
    run = submitted(packs, str(go))
    at_work(packs, run, 8)
    on = {one: (packs.runs / run / f"tasks/{one}/.nodes").read_text().strip() for one in range(8)}
    faults.give_up(packs.slurm, "node2")
    lost = [one for one, node in on.items() if node == "node2"]
    until(lambda: all(states(packs, run)[one] == "REQUEUED" for one in lost), "the lost elements to wait", WAIT_S)
    assert [state for one, state in enumerate(states(packs, run)) if one not in lost and one < 8] == ["RUNNING"] * 4
    assert "its node failed: continued as attempt 2" in packs.json("status", f"{run}:{lost[0]}")["note"]
    go.touch()
    packs.wait(run, "COMPLETED")
    assert attempts_of(packs, run) == [2 if one in lost else 1 for one in range(12)], everything(packs, run)
    assert {one["where"][0] for one in told(packs, run)} == {"node1"}
    events_of_job = events.attempts(events.read(RunPaths(packs.runs / run)))
    assert [one.number for one in events_of_job] == [1]


def test_a_requeue_of_the_job_continues_only_what_is_unfinished(packs: Site) -> None:
    go = packs.folder / "go-requeue"
    run = submitted(packs, str(go), array="0-3", nodes=1)
    at_work(packs, run, 4)
    (job,) = jobs(packs)
    step = packs.run("squeue", "--steps", "--noheader", "--format=%i %j").out.split("\n")
    assert any(line.split()[1:] == ["2"] for line in step if line), step
    assert packs.json("cancel", f"{run}:2")["state"] == "CANCELLED"
    packs.run("scontrol", "requeue", job)
    until(lambda: states(packs, run)[0] == "REQUEUED", "the requeue", WAIT_S)
    faults.start_soon(packs.slurm, job)
    until(lambda: states(packs, run) == ["RUNNING", "RUNNING", "CANCELLED", "RUNNING"], "the second attempt", WAIT_S)
    go.touch()
    ended(packs, run)
    assert states(packs, run) == ["COMPLETED", "COMPLETED", "CANCELLED", "COMPLETED"], everything(packs, run)
    assert attempts_of(packs, run) == [2, 2, 1, 2]
    assert packs.trainjob("resume", run).code == 0
    packs.wait(run, "COMPLETED")
    assert attempts_of(packs, run) == [2, 2, 2, 2]


@pytest.mark.parametrize("place", ["here", pytest.param("far", marks=pytest.mark.full)])
def test_one_element_is_cancelled_and_then_all(packs: Site, place: str) -> None:
    run = submitted(packs, str(packs.folder / "never"), place=place, array="0-5%4", nodes=1)
    at_work(packs, run, 4)
    until(lambda: states(packs, run) == ["RUNNING"] * 4 + ["PENDING"] * 2, "what runs and what waits", WAIT_S)
    assert packs.json("cancel", f"{run}:4")["state"] == "CANCELLED"  # it waits
    assert packs.json("cancel", f"{run}:0")["state"] == "CANCELLED"  # it runs, and the last one takes its share
    until(lambda: states(packs, run)[5] == "RUNNING", "the last one", WAIT_S)
    assert states(packs, run) == ["CANCELLED", *["RUNNING"] * 3, "CANCELLED", "RUNNING"]
    at_work(packs, run, 5)
    refused = packs.trainjob("resume", f"{run}:0")
    assert (refused.code, "of an earlier attempt of run" in refused.err) == (1, True), refused.err
    assert packs.json("cancel", run)["state"] == "CANCELLED"
    assert states(packs, run) == ["CANCELLED"] * 6, everything(packs, run)
    assert not jobs(packs)


def test_the_time_limit_asks_all_elements_and_the_job_goes_on_with_those_that_saved(packs: Site) -> None:
    saves = (
        'trap "echo 1 >$TRAINJOB_RUN_DIR/requeue; exit 0" USR1; [ $TRAINJOB_ATTEMPT = 1 ] || exit 0; sleep 600 & wait'
    )
    asked = ("--pack", "1", "--array", "0-5", "--instances", "1", "--", "bash", "-c", f"echo at work; {saves}")
    run = packs.submit("here", *asked)
    at_work(packs, run, 4)
    (job,) = jobs(packs)
    packs.run("scancel", "--batch", "--signal=USR1", job)  # what Slurm does before the time limit
    until(lambda: states(packs, run)[:4] == ["REQUEUED"] * 4, "all to have saved", WAIT_S)
    until(lambda: "PENDING" in packs.run("squeue", "--noheader", "--format=%T").out, "the requeue", WAIT_S)
    assert states(packs, run)[4:] == ["PENDING"] * 2
    faults.start_soon(packs.slurm, job)
    at_work(packs, run, 6)  # in their second attempts the four end at once, and the two that waited begin
    packs.json("cancel", run)


def test_a_run_that_waits_is_cancelled_element_by_element(packs: Site) -> None:
    first = submitted(packs, str(packs.folder / "never"), array="0-1")
    at_work(packs, first, 2)
    run = submitted(packs, "1", array="0-2")
    assert packs.json("cancel", f"{run}:1")["state"] == "CANCELLED"
    assert states(packs, run) == ["PENDING", "CANCELLED", "PENDING"]
    packs.json("cancel", first)
    ended(packs, run)
    assert states(packs, run) == ["COMPLETED", "CANCELLED", "COMPLETED"], everything(packs, run)
