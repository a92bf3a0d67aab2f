"""Which allocation a run goes into, and what it must have: by what Slurm shows of a job."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.render_cases import request
from trainjob.cluster.base import Cluster
from trainjob.contract.errors import UserError
from trainjob.kinds.table import cluster_of, in_allocation
from trainjob.machines.machine import Machine
from trainjob.machines.slurm.allocations import Allocation, parse
from trainjob.machines.slurm.commands import SlurmMissingError
from trainjob.requests import inside

SHOWN = (
    "JobId=7 JobName=bash UserId=ml(1000) JobState=RUNNING Reason=None RunTime=00:10:00 TimeLimit=02:00:00 "
    "StartTime=2026-11-27T04:51:57 EndTime=2026-11-27T06:51:57 Partition=gpu NodeList=node[1-2] NumNodes=2 NumCPUs=16 "
    "NumTasks=2 TRES=cpu=16,mem=32G,node=2,billing=8,gres/gpu=8 TresPerNode=gres:gpu:4 Comment=JobState=FAILED"
)
HELD = Allocation("7", "bash", "gpu", nodes=2, cpus_per_node=8, gpus_per_node=4, left_s=6600)
SLURM: dict[str, Any] = {
    "kind": "slurm",
    "nodes": {"count": 8, "accelerator": "gpu", "accelerators": 4, "cpus": 64},
    "directives": {"partition": "gpu"},
    "time_limit": "24:00:00",
    "runs_dir": "/shared/runs",
}


def test_an_allocation_as_slurm_shows_it() -> None:
    assert parse(SHOWN, "7") == HELD._replace(shown=SHOWN)
    without_accounting = SHOWN.replace(",gres/gpu=8", "")
    assert parse(without_accounting, "7") == HELD._replace(shown=without_accounting)
    assert parse(SHOWN.replace("TimeLimit=02:00:00", "TimeLimit=UNLIMITED"), "7").left_s is None
    typed = without_accounting.replace("gres:gpu:4", "gres/gpu:a100:4")
    assert parse(typed, "7").gpus_per_node == 4
    assert parse(SHOWN.replace("gres/gpu=8", "gres/gpu:a100=8"), "7").gpus_per_node == 4
    other_element = SHOWN.replace("JobId=7 ", "JobId=8 ArrayJobId=7 ").replace("NumNodes=2", "NumNodes=1")
    assert parse(f"{other_element}\n{SHOWN}\n", "7") == HELD._replace(shown=SHOWN)


@pytest.mark.parametrize("asked", ["TresPerJob=gres:gpu:8", "TresPerTask=gres/gpu:1", "TresPerSocket=gres:gpu:1"])
def test_gpus_that_nobody_counts_by_node_are_not_known(asked: str) -> None:
    shown = SHOWN.replace(",gres/gpu=8", "").replace("TresPerNode=gres:gpu:4", asked)
    assert parse(shown, "7").gpus_per_node is None
    assert parse(shown.replace(asked, "TresPerJob=gres:fpga:1"), "7").gpus_per_node == 0


@pytest.mark.parametrize("state", ["PENDING", "COMPLETED", "SUSPENDED"])
def test_only_a_job_that_runs_has_nodes(state: str) -> None:
    with pytest.raises(UserError, match=f"the job is {state}"):
        parse(SHOWN.replace("JobState=RUNNING", f"JobState={state}", 1), "7")


def misfit(held: Allocation = HELD, **job: Any) -> str:
    cluster = in_allocation("hpc", cluster_of(SLURM))
    try:
        inside.refuse_misfit(held, cluster, request(cluster, **{"instances": 4, "command": ["true"], **job}))
    except UserError as error:
        return str(error)
    return ""


def test_what_fits() -> None:
    assert misfit(time_limit="01:50:00") == ""
    assert misfit(instances=8, hosts=2, time_limit="01:50:00") == ""
    assert misfit(HELD._replace(left_s=None), time_limit="10:00:00") == ""
    assert misfit(HELD._replace(gpus_per_node=None), time_limit="01:50:00") == ""


@pytest.mark.parametrize(
    ("held", "job", "said"),
    [
        (HELD, {"instances": 12, "hosts": 3}, "takes 3 nodes, and job 7 has 2"),
        (HELD._replace(partition="cpu"), {}, "for partition gpu, and job 7 is in cpu"),
        (HELD, {"time_limit": "01:50:01"}, "time limit is 01:50:01, and job 7 ends in 01:50:00"),
        (HELD._replace(gpus_per_node=3), {}, "takes 4 GPUs of a node, and job 7 has 3 on each"),
        (HELD._replace(cpus_per_node=3), {}, "starts 4 instances on a node, and job 7 has 3 CPUs on each"),
    ],
)
def test_what_does_not_fit_is_said_with_both_figures(held: Allocation, job: dict[str, Any], said: str) -> None:
    refusal = misfit(held, **{"time_limit": "00:10:00", **job})
    assert said in refusal
    assert "--in none" in refusal


def shown_by_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(machine: Machine, job_id: str) -> Allocation:
        del machine
        return HELD._replace(job_id=job_id)

    monkeypatch.setattr(inside, "look", look)


def test_which_job_a_run_goes_into(monkeypatch: pytest.MonkeyPatch) -> None:
    shown_by_slurm(monkeypatch)
    here, elsewhere, local = (
        cluster_of(SLURM),
        cluster_of({**SLURM, "ssh": {"host": "login"}}),
        cluster_of({"kind": "local"}),
    )

    def job(flag: str | None, cluster: Cluster) -> str | None:
        held = inside.chosen(flag, "hpc", cluster)
        return held and held.allocation.job_id

    monkeypatch.delenv(inside.VARIABLE, raising=False)
    assert job(None, here) is None
    assert job("12", here) == job("12", elsewhere) == "12"
    monkeypatch.setenv(inside.VARIABLE, "34")
    assert (job(None, here), job("12", here), job("none", here)) == ("34", "12", None)
    # The job that this process is in belongs to another Slurm, or to none.
    assert job(None, elsewhere) is job(None, local) is None
    monkeypatch.setenv("TRAINJOB_RUN_DIR", "/runs/abcd-train")  # a rank that submits the evaluation
    assert (job(None, here), job("12", here)) == (None, "12")


def test_a_shell_that_has_outlived_its_job_submits_to_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(machine: Machine, job_id: str) -> Allocation:
        del machine
        return parse(SHOWN.replace("JobState=RUNNING", "JobState=COMPLETED", 1), job_id)

    monkeypatch.setattr(inside, "look", look)
    monkeypatch.setenv(inside.VARIABLE, "7")
    assert inside.chosen(None, "hpc", cluster_of(SLURM)) is None
    with pytest.raises(UserError, match="the job is COMPLETED"):
        inside.chosen("7", "hpc", cluster_of(SLURM))


def test_where_slurm_has_no_commands_only_a_job_that_is_named_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(machine: Machine, job_id: str) -> Allocation:
        raise SlurmMissingError(f"no scontrol on {machine.name} for {job_id}", "go elsewhere")

    monkeypatch.setattr(inside, "look", look)
    monkeypatch.setenv(inside.VARIABLE, "34")
    assert inside.chosen(None, "hpc", cluster_of(SLURM)) is None
    with pytest.raises(SlurmMissingError):
        inside.chosen("34", "hpc", cluster_of(SLURM))


@pytest.mark.parametrize("flag", ["", "-1", "1;id", "٣", "1_2", "12345678901"])
def test_a_job_is_named_by_its_number(flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "look", lambda *_, **__: pytest.fail("Slurm was asked"))
    with pytest.raises(UserError, match="expected the number of a job"):
        inside.chosen(flag, "hpc", cluster_of(SLURM))


def test_a_cluster_without_jobs_has_no_allocations() -> None:
    with pytest.raises(UserError, match="of kind local"):
        inside.chosen("5", "local", cluster_of({"kind": "local"}))


def test_no_allocation_of_what_srun_does_not_start_alike() -> None:
    groups = [{"name": name, "count": 1, "accelerator": "cpu", "cpus": 8} for name in ("a", "b")]
    with pytest.raises(UserError, match="list of groups"):
        in_allocation("hpc", cluster_of({**SLURM, "nodes": groups}))
