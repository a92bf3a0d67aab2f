"""What a job's ranks find around them: the same whoever submits it and from where, and each bound to its own CPUs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_runs import Here, Run
from tests.support.slurm_jobs import LIMIT_S, Login, everything_printed
from trainjob.contract.paths import RunPaths
from trainjob.records import events, failure
from trainjob.rehearse.slurm.description import Description, SlurmPartition
from trainjob.rehearse.slurm.private import PrivateSlurm, private_slurm

pytestmark = pytest.mark.timeout(600)

# No more CPUs than the smallest machine that runs these tests: task/affinity binds to real ones.
CPUS = {"nodes": {"count": 2, "cpus": 2}, "python": sys.executable}
SHOWS = (
    "import json, os; json.dump({'environment': dict(os.environ), 'cpus': sorted(os.sched_getaffinity(0))}, "
    "open(os.environ['TRAINJOB_RUN_DIR'] + '/rank-' + os.environ['RANK'], 'w'))"
)
# Each of these was seen to end, move or hold back a job, or to become an element of an array or an old attempt.
HOSTILE = {
    "MEM_PER_CPU": "1", "MEM_PER_NODE": "1", "EXCLUSIVE": "user", "NO_KILL": "1", "GPUS": "9", "GRES": "gpu:9",
    "GPUS_PER_NODE": "9", "GPUS_PER_TASK": "9", "NTASKS_PER_GPU": "3", "NTASKS_PER_CORE": "1", "MPI_TYPE": "nonsense",
    "TASK_PROLOG": "/bin/false", "TASK_EPILOG": "/bin/false", "THREADS_PER_CORE": "7", "HINT": "memory_bound",
    "DISTRIBUTION": "cyclic", "CONSTRAINT": "nonsense", "ARRAY_TASK_ID": "3", "ARRAY_JOB_ID": "2",
    "ARRAY_TASK_COUNT": "9", "RESTART_COUNT": "4", "CPU_BIND": "quiet,mask_cpu:0x1", "CPU_BIND_TYPE": "mask_cpu:",
    "CPU_BIND_LIST": "0x1", "CPUS_PER_GPU": "4", "EXPORT_ENV": "NONE", "KILL_BAD_EXIT": "0", "LABELIO": "1",
    "NICE": "5", "OVERCOMMIT": "1", "RELATIVE": "1", "SPREAD_JOB": "1", "STEP_GPUS": "0,1", "TIMELIMIT": "1",
    "UNBUFFEREDIO": "1", "WAIT": "1", "WORKING_DIR": "/nowhere", "PROFILE": "all", "NTASKS_PER_SOCKET": "1",
}  # fmt: skip
# These name the job, its place and its time.
OF_ONE_JOB = (
    "JOB",
    "PORT",
    "STEP",
    "PID",
    "TOKEN",
    "RUN_DIR",
    "SUBMIT",
    "TIME",
    "PWD",
    "LAUNCH_NODE",
    "SRUN_COMM",
)


@pytest.fixture(scope="module")
def slurm(needs: Callable[[str], Path]) -> Iterator[PrivateSlurm]:
    needs("slurm")
    affinity = {"TaskPlugin": "task/affinity"}
    with private_slurm(Description(nodes=2, cpus=2, partitions=(SlurmPartition("cpu"),), settings=affinity)) as made:
        yield made


@pytest.fixture
def login(slurm: PrivateSlurm, here: Here) -> Login:
    return Login(here, slurm, **CPUS)


def ranks_of(login: Login, *sbatch: str, cluster: str = "hpc", **environment: str) -> tuple[Run, list[dict[str, Any]]]:
    """Return a run of two ranks on each of two nodes, and what each found. `sbatch` stands before its first word."""
    run = login.render("--instances", "4", "--hosts", "2", "--", sys.executable, "-c", SHOWS, cluster=cluster)
    words = [*sbatch, "sbatch", "--parsable", "job.sbatch"]
    sent = login.slurm.run(words, folder=run.folder, environment=environment, timeout_s=LIMIT_S)
    login.wait(sent.text.strip().splitlines()[-1])
    assert run.word("state") == "COMPLETED", everything_printed(run)
    return run, [json.loads((run.folder / f"rank-{rank}").read_text()) for rank in range(4)]


def comparable(rank: dict[str, Any]) -> dict[str, Any]:
    folder = rank["environment"]["TRAINJOB_RUN_DIR"]
    environment = {
        name: text.replace(folder, "RUN").replace(Path(folder).name, "RUN-ID")
        for name, text in rank["environment"].items()
        if not any(map(name.__contains__, OF_ONE_JOB))
    }
    return {**environment, "cpus": rank["cpus"]}


def test_a_job_is_the_same_from_a_login_shell_and_from_inside_another_job(login: Login) -> None:
    _, plain = ranks_of(login)
    hostile = {f"SLURM_{name}": value for name, value in HOSTILE.items()}
    _, by_hostile = ranks_of(login, **hostile, TMPDIR="/var/tmp")
    _, from_a_job = ranks_of(login, "salloc", "--quiet", "--nodes=1", "--ntasks=1", "srun", "--cpu-bind=cores")
    for others in (by_hostile, from_a_job):
        assert [comparable(rank) for rank in others] == [comparable(rank) for rank in plain]
    # Slurm's own, which it gives the first task of a node and no other.
    assert {rank["environment"].get("TMPDIR") for rank in plain} == {"/tmp"}
    # Two ranks of a node share no CPU, and each has a thread for the one that is its own.
    assert [rank["cpus"] for rank in plain] == [[0], [1]] * 2
    assert {rank["environment"]["OMP_NUM_THREADS"] for rank in plain} == {"1"}
    standard = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    assert {rank["environment"]["PATH"] for rank in plain} == {f"{Path(sys.executable).parent}:{standard}"}


def test_a_rank_has_all_the_threads_of_the_cpus_it_is_bound_to(login: Login) -> None:
    run = login.render("--instances", "2", "--hosts", "2", "--", sys.executable, "-c", SHOWS)
    login.wait(login.slurm.run(["sbatch", "--parsable", "job.sbatch"], folder=run.folder).text.strip())
    assert run.word("state") == "COMPLETED", everything_printed(run)
    found = [json.loads((run.folder / f"rank-{rank}").read_text()) for rank in (0, 1)]
    assert [(rank["cpus"], rank["environment"]["OMP_NUM_THREADS"]) for rank in found] == [([0, 1], "2")] * 2


def test_options_of_srun_and_sbatch_reach_the_ranks(login: Login) -> None:
    """Cyclic: neighbouring ranks are on different nodes. Not bound: ranks share the node's CPUs, and divide them."""
    directives = {"time-min": "00:01:00", "hint": "nomultithread"}
    options = {"cpu-bind": "none", "distribution": "cyclic", "wait": 30, "label": False}
    login.cluster("chosen", **CPUS, time_limit="00:05:00", directives=directives, srun=options)
    run, ranks = ranks_of(login, cluster="chosen")
    assert [rank["environment"]["SLURMD_NODENAME"] for rank in ranks] == ["node1", "node2"] * 2
    assert [(rank["cpus"], rank["environment"]["OMP_NUM_THREADS"]) for rank in ranks] == [([0, 1], "1")] * 4
    script = (run.folder / "job.sbatch").read_text()
    assert "#SBATCH --time-min=00:01:00\n" in script
    assert "#SBATCH --hint=nomultithread\n" in script


def test_limits_of_the_login_node_do_not_reach_the_ranks(login: Login) -> None:
    shows = "import os, resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    run = login.render("--", sys.executable, "-c", shows)
    words = ["sh", "-c", "ulimit -n 321; exec sbatch --parsable job.sbatch"]
    login.wait(login.slurm.run(words, folder=run.folder).text.strip())
    assert run.word("state") == "COMPLETED", everything_printed(run)
    assert int((run.folder / "logs/rank-0000.log").read_text().splitlines()[-1]) > 321


def test_limits_that_the_prologue_sets_reach_the_ranks_of_every_node(login: Login) -> None:
    shows = (
        "import os, resource; limits = resource.getrlimit(resource.RLIMIT_NOFILE)[0], "
        "resource.getrlimit(resource.RLIMIT_CORE)[0]; print(os.environ['SLURMD_NODENAME'], *limits)"
    )
    login.cluster("limited", **CPUS, prologue=["ulimit -S -n 543", "ulimit -c 8"])
    run = login.render("--hosts", "2", "--instances", "2", "--", sys.executable, "-c", shows, cluster="limited")
    login.wait(login.slurm.run(["sbatch", "--parsable", "job.sbatch"], folder=run.folder).text.strip())
    assert run.word("state") == "COMPLETED", everything_printed(run)
    output = [(run.folder / f"logs/rank-{rank:04d}.log").read_text().splitlines()[-1] for rank in (0, 1)]
    assert output == ["node1 543 8192", "node2 543 8192"]


def test_a_limit_above_a_nodes_own_is_refused_with_its_cure(login: Login) -> None:
    login.cluster(
        "high", **CPUS, prologue=["export TRAINJOB_LIMITS_FOUND=none", "ulimit() { echo '(-n) 9999999999'; }"]
    )
    run = login.render("--", sys.executable, "-c", "pass", cluster="high")
    login.wait(login.slurm.run(["sbatch", "--parsable", "job.sbatch"], folder=run.folder).text.strip())
    assert run.word("state") == "FAILED"
    output = everything_printed(run)
    assert "the prologue sets ulimit -S -n 9999999999 on the first node, and on node1 at most" in output


# The first rank has a handler of TERM, as a script that saves; the other one, on the other node, fails.
FAILS = """\
import os, pathlib, signal, sys, time
ready, got = (pathlib.Path(os.environ["TRAINJOB_RUN_DIR"], name) for name in ("ready", "got"))
if os.environ["RANK"] == "0":
    signal.signal(signal.SIGTERM, lambda *_: (got.touch(), sys.exit(0)))
    ready.touch()
    time.sleep(300)
while not ready.exists():
    time.sleep(0.1)
sys.exit("no data")
"""


def test_the_term_that_srun_sends_to_the_other_node_after_a_failure_is_no_request_and_no_event(login: Login) -> None:
    run = login.render("--instances", "2", "--hosts", "2", "--", sys.executable, "-c", FAILS)
    login.wait(login.slurm.run(["sbatch", "--parsable", "job.sbatch"], folder=run.folder).text.strip())
    paths = RunPaths(run.folder)
    assert run.word("state") == "FAILED", everything_printed(run)
    assert (run.folder / "got").exists(), "srun has sent no TERM: this shows nothing"
    failed = failure.read(paths)
    assert failed is not None
    assert (failed.rank, failed.exit_code) == (1, 1)
    assert not paths.bypassed(1, "TERM").exists()
    assert "TERM" not in events.why_ended(events.read(paths), 1)
