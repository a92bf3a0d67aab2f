"""IPUs under a real Slurm, with stand-ins for poprun and vipu: the three styles of sites, and whose partition it is."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_runs import Here, every_process
from tests.support.slurm_jobs import parsed
from tests.support.slurm_site import Site, site
from tests.support.verdicts import verify
from tests.support.waiting import until
from trainjob.rehearse.slurm import faults, ipus
from trainjob.rehearse.slurm.description import Description

pytestmark = pytest.mark.timeout(900)

NODES = {"count": 2, "accelerator": "ipu", "accelerators": 4, "cpus": 8}
STYLES: dict[str, dict[str, Any]] = {
    "nodes": {
        "request": "none",
        "vipu": {"partition": "p8"},
        "directives": {"partition": "rehearsal", "exclusive": True},
    },
    "option": {"request": "ipus", "vipu": {"partition": "slurm_%j"}},
    "own": {"request": "gres", "vipu": {"server": "pod-ctl", "allocation": "all"}},
}
# Says what an instance was told; an argument is its exit code.
TELL = """\
import os, sys
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "IPUOF_VIPU_API_PARTITION_ID", "POPDIST_REPLICA_INDEX_OFFSET")
print(*(os.environ[name] for name in names), os.uname().nodename, os.environ["SLURM_JOB_ID"])
sys.exit(int(sys.argv[1]))
"""
# Attempt 1 stays until it is asked by USR1, and rank 0 then leaves the marker.
ASKED = """\
import os, pathlib, signal, time
run = pathlib.Path(os.environ["TRAINJOB_RUN_DIR"])
def asked(number, frame):
    if os.environ["RANK"] == "0":
        (run / "requeue").write_text("7\\n")
    os._exit(75)
signal.signal(signal.SIGUSR1, asked)
print("ready", flush=True)
while os.environ["TRAINJOB_ATTEMPT"] == "1":
    time.sleep(0.05)
"""
FOUR = ("--instances", "4", "--hosts", "2")


def cluster_file(style: str, exports: Mapping[str, str]) -> dict[str, Any]:
    """Return what a cluster file says beside what all of a site's say; its prologue is a site's module."""
    prologue = [f"export {name}={value!r}" for name, value in exports.items()]
    limits = {"limits": None, "directives": {"partition": "rehearsal"}}
    # What a large model's checkpoint takes, these commands don't.
    limits["env"] = {"OMPI_MCA_odls_base_sigkill_timeout": "1"}
    return {**limits, "nodes": NODES, "sdk": {"version": "3.3.0"}, "prologue": prologue, **STYLES[style]}


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory, needs: Callable[[str], Path]) -> Iterator[Site]:
    for service in ("slurm", "mpirun", "sshd", "cc"):
        needs(service)
    place = tmp_path_factory.mktemp("pod")
    by_option = parsed({"kind": "slurm", "nodes": NODES, **STYLES["option"]})
    exports = ipus.environment(place, by_option, {"TRAINJOB_PYTHON": sys.executable})
    settings = ipus.settings(place, by_option, 8)
    state = json.loads((place / "vipu" / "site.json").read_text())
    made = {"size": 8, "owner": "root", "state": "PS_ACTIVE", "allocation": "all", "reconfigurable": True, "gcds": 1}
    state |= {"ipus": 64, "allocations": ["all"], "partitions": {"p8": {**made, "sync_type": "c2-compatible"}}}
    (place / "vipu" / "site.json").write_text(json.dumps(state))
    description = Description(nodes=2, cpus=8, gres="ipu", gres_count=4, settings=settings)
    with site(tmp_path_factory.mktemp("site"), needs("sshd"), description) as cluster:
        for style in STYLES:
            cluster.write_cluster(style, **cluster_file(style, exports))
        (cluster.here / "tell.py").write_text(TELL)
        (cluster.here / "asked.py").write_text(ASKED)
        cluster.environment |= exports
        cluster.environment["PATH"] = f"{cluster.node.bin}:{exports['PATH']}"
        yield cluster


def partitions(cluster: Site) -> list[str]:
    output_of = cluster.run("vipu", "list", "partitions")
    assert output_of.code == 0, output_of.err
    return [line.split()[0] for line in output_of.out.splitlines()[1:] if not line.startswith("-")]


def only_the_sites_is_left(cluster: Site, run: str) -> None:
    left = partitions(cluster)
    # A site's epilogue takes away what its prologue has made, in its own time.
    until(
        lambda: partitions(cluster) == ["p8"], f"but the site's own no partition of {left}\n{output_of(cluster, run)}"
    )


def folder(cluster: Site, run: str) -> Path:
    return cluster.runs / run


def output_of(cluster: Site, run: str) -> str:
    return "".join(log.read_text() for log in sorted((folder(cluster, run) / "logs").iterdir()))


@pytest.mark.parametrize("style", STYLES)
def test_each_style_starts_its_instances_on_its_partition(pod: Site, style: str) -> None:
    run = pod.submit(style, *FOUR, "--", "python", "tell.py", "0")
    pod.wait(run, "COMPLETED")
    job = (folder(pod, run) / "job_id").read_text().strip()
    partition = {"nodes": "p8", "option": f"slurm_{job}", "own": f"trainjob_{job}"}[style]
    logs = [folder(pod, run) / "logs" / f"rank-000{rank}.log" for rank in range(4)]
    assert [log.read_text().splitlines()[1] for log in logs] == [
        f"{rank} 4 {rank % 2} {partition} {2 * rank} node{rank // 2 + 1} {job}" for rank in range(4)
    ], output_of(pod, run)
    only_the_sites_is_left(pod, run)


def test_a_job_that_fails_names_the_rank_and_takes_its_partition_along(pod: Site) -> None:
    run = pod.submit("own", *FOUR, "--", "python", "tell.py", "3")
    pod.wait(run, "FAILED")
    status = pod.json("status", run)
    assert status["exit_code"] == 3, output_of(pod, run)
    assert partitions(pod) == ["p8"]


def at_work(pod: Site, run: str) -> str:
    """Return the job, all of whose ranks are at work, on a partition of its own."""
    logs = [folder(pod, run) / "logs" / f"rank-000{rank}.log" for rank in range(4)]
    until(lambda: all(log.exists() and "ready" in log.read_text() for log in logs), f"{run} at work")
    job = (folder(pod, run) / "job_id").read_text().strip()
    assert f"trainjob_{job}" in partitions(pod)
    return job


@pytest.mark.parametrize("by", ["scancel", "trainjob"])
def test_a_cancelled_job_takes_its_partition_along(pod: Site, by: str) -> None:
    run = pod.submit("own", *FOUR, "--", "python", "asked.py")
    job = at_work(pod, run)
    ended = pod.run("scancel", job) if by == "scancel" else pod.trainjob("cancel", run)
    assert ended.code == 0, ended.err
    pod.wait(run, "CANCELLED")
    only_the_sites_is_left(pod, run)


def kill_what_works_in(run: Path) -> None:
    for pid in every_process():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cwd").resolve().is_relative_to(run):
                os.kill(pid, signal.SIGKILL)


def test_a_partition_that_a_killed_job_has_left_goes_with_cancel(pod: Site) -> None:
    run = pod.submit("own", *FOUR, "--", "python", "asked.py")
    job = at_work(pod, run)
    kill_what_works_in(folder(pod, run))
    until(lambda: not pod.run("squeue", "--noheader").out.strip(), "the job to end")
    assert f"trainjob_{job}" in partitions(pod)
    cancelled = pod.trainjob("cancel", run)
    assert cancelled.code == 0, cancelled.err
    assert partitions(pod) == ["p8"]


def test_a_job_asked_before_its_time_limit_comes_back_with_a_partition(pod: Site) -> None:
    run = pod.submit("own", *FOUR, "--", "python", "asked.py")
    job = at_work(pod, run)
    # What --signal=B:USR1 has Slurm send before the time limit.
    assert "#SBATCH --signal=B:USR1@" in (folder(pod, run) / "job.sbatch").read_text()
    pod.run("scancel", "--batch", "--signal=USR1", job)
    until(lambda: (folder(pod, run) / "state").read_text() == "REQUEUED\n", f"{run} requeued\n{output_of(pod, run)}")
    until(lambda: "PENDING" in pod.run("squeue", "--noheader", "--format=%T").out, "the job to wait again")
    faults.start_soon(pod.slurm, job)
    pod.wait(run, "COMPLETED")
    assert (folder(pod, run) / "attempt").read_text() == "2\n"
    assert partitions(pod) == ["p8"]


def test_rehearsed_instances_on_two_nodes_train_as_one(needs: Callable[[str], Path], here: Here) -> None:
    needs("slurm")
    needs("mpirun")
    file = {"kind": "slurm", "nodes": NODES, "time_limit": "00:30:00", "sdk": {"version": "3.3.0"}, **STYLES["own"]}
    here.write("clusters/own.yaml", json.dumps(file))
    verdict = verify(here, "--cluster", "own", "--instances", "2", "--hosts", "2", "--updates", "2", limit_s=600)
    assert (verdict["equal"], verdict["engine"], verdict["instances"]) == (True, "ipu", 2)
