"""Runs inside an allocation that their user holds, under a real Slurm: steps of a job that nothing of theirs ends."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from functools import partial

import pytest

from tests.support.programs import TRAINJOB
from tests.support.slurm_jobs import POLL_S
from tests.support.slurm_site import Site
from tests.support.waiting import until
from trainjob.contract.paths import RunPaths
from trainjob.records.files import read_word

pytestmark = pytest.mark.timeout(900)

# What each rank prints, and whether TERM reaches it before KILL does.
SCRIPT = """\
import os, signal, sys, time
def ended(*_):
    print("told to end", flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, ended)
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "in", os.environ["SLURM_JOB_ID"], flush=True)
print("port", os.environ["MASTER_PORT"], flush=True)
time.sleep(float(sys.argv[1]))
"""
FOUR = ("--cluster", "here", "--instances", "4", "--hosts", "2")
ONE = ("--cluster", "here", "--instances", "1")


@pytest.fixture
def held(cluster: Site, no_stand_ins: None) -> str:
    """Return the id of a job of two nodes that runs, as `salloc --no-shell` leaves one."""
    (cluster.here / "go.py").write_text(SCRIPT)
    return allocation(cluster)


def allocation(cluster: Site, *options: str, minutes: int = 30, running: int = 1) -> str:
    words = ("--nodes=2", "--cpus-per-task=4", "--partition=gpu", f"--time={minutes}", *options)
    made = cluster.run("sbatch", "--parsable", *words, "--wrap=sleep 1800")
    assert made.code == 0, made.err
    job = made.out.strip()
    until(lambda: state_of(cluster, job).split() == ["RUNNING"] * running, "the allocation", poll_s=POLL_S)
    return job


def state_of(cluster: Site, job: str) -> str:
    return cluster.run("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T").out.strip()


def steps(cluster: Site, run: str) -> list[str]:
    listed = cluster.run("squeue", "--steps", "--noheader", "--format=%i %j").out.splitlines()
    return [line.split()[0] for line in listed if line.split()[1:] == [run]]


def logs(cluster: Site, run: str) -> str:
    return cluster.trainjob("logs", run).out


def seen_in(cluster: Site, run: str, *states: str) -> bool:
    return cluster.state(run) in states


def begun(cluster: Site, job: str, *words: str, seconds: str = "600") -> str:
    """Return the id of a run whose ranks have all printed."""
    run = cluster.submit("here", *words, "--in", job, "--", sys.executable, "go.py", seconds)
    until(lambda: logs(cluster, run).count("rank ") >= 2 * int(words[words.index("--instances") + 1]), "ranks")
    return run


def test_a_run_is_a_step_and_every_command_knows_it(cluster: Site, held: str) -> None:
    run = begun(cluster, held, *FOUR[2:])
    assert len(steps(cluster, run)) == 2
    seen = RunPaths(cluster.runs / run).allocation
    assert seen.read_text().startswith(f"JobId={held} ")
    assert read_word(RunPaths(cluster.runs / run).job_id) == held
    shown = cluster.json("status", run)
    assert (shown["state"], shown["scheduler"]["job_id"]) == ("RUNNING", held)
    assert all(f"rank {rank} of 4 in {held}" in logs(cluster, run) for rank in range(4))
    assert "4 ranks (0, 1, 2, 3)" in cluster.trainjob("stacks", run).out
    beside = cluster.trainjob("shell", run, "--rank", "3", "--", "sh", "-c", "echo $SLURM_JOB_ID $SLURMD_NODENAME")
    assert beside.out.split() == [held, "node2"], beside.err

    assert "CANCELLED" in cluster.trainjob("cancel", run).out
    assert steps(cluster, run) == []
    assert logs(cluster, run).count("told to end") == 4  # TERM, not KILL
    assert "CANCELLED" in cluster.trainjob("report", run).out
    assert state_of(cluster, held) == "RUNNING"

    # The same allocation takes it once more, and then others.
    assert cluster.trainjob("resume", run).code == 0
    assert not seen.exists()  # hours may have passed
    until(lambda: logs(cluster, run).count(f"in {held}") == 8, "the second attempt")
    assert cluster.trainjob("cancel", run).code == 0
    again = cluster.trainjob("submit", *FOUR, "--in", held, "--follow", "--", sys.executable, "go.py", "0")
    assert again.code == 0, again.err
    assert "COMPLETED" in again.out
    assert state_of(cluster, held) == "RUNNING"


def test_what_is_rendered_for_an_allocation_is_what_runs(cluster: Site, held: str) -> None:
    command = (*FOUR, "--in", held, "--", sys.executable, "go.py", "0")
    rendered = cluster.trainjob("render", *command).out
    run = cluster.submit("here", *command[2:])
    assert (RunPaths(cluster.runs / run).folder / "job.sh").read_text() == rendered
    cluster.wait(run, "COMPLETED")


def test_a_run_takes_the_first_nodes_and_fewer_cpus_than_the_file_gives(cluster: Site, held: str) -> None:
    run = begun(cluster, held, *ONE[2:])
    paths = RunPaths(cluster.runs / run)
    assert '--cpus-per-task="${SLURM_CPUS_PER_TASK:-8}"' in paths.job_script.read_text()  # the job has 4
    assert read_word(paths.folder / ".nodes") == "node1"
    cluster.trainjob("cancel", run)


def test_two_runs_of_one_job_do_not_meet_at_one_port(cluster: Site, held: str) -> None:
    # No rank opens its port, as if both runs had looked for a free one in the same instant.
    runs = [begun(cluster, held, *ONE[2:], "--again") for _ in range(2)]
    until(lambda: all("port " in logs(cluster, run) for run in runs), "ports")
    ports = [re.findall("port ([0-9]+)", logs(cluster, run)) for run in runs]
    assert set(ports[0]).isdisjoint(ports[1]), ports
    for run in runs:
        cluster.trainjob("cancel", run)


def test_an_element_of_an_array_holds_nodes_as_any_job_does(cluster: Site, no_stand_ins: None) -> None:
    (cluster.here / "go.py").write_text(SCRIPT)
    array = allocation(cluster, "--array=3,4", "--nodes=1", running=2)
    for element in (3, 4):
        job = cluster.run("squeue", "--noheader", f"--jobs={array}_{element}", "--format=%A").out.strip()
        run = begun(cluster, job, *ONE[2:], "--again")
        assert cluster.json("status", run)["state"] == "RUNNING"
        assert "CANCELLED" in cluster.trainjob("cancel", run).out
        assert logs(cluster, run).count("told to end") == 1
        assert steps(cluster, run) == []
    assert state_of(cluster, array) == "RUNNING\nRUNNING"


def test_within_a_job_a_run_goes_into_it_unless_told_otherwise(cluster: Site, held: str) -> None:
    inside = {"SLURM_JOB_ID": held}
    command = ("submit", *ONE, "--again", "--json")
    done = ("--", sys.executable, "go.py", "0")
    by_itself = cluster.trainjob(*command, *done, environment=inside)
    assert f"inside job {held}" in by_itself.err
    assert "--in none" in by_itself.err
    to_queue = cluster.trainjob(*command, "--in", "none", "--no-check", *done, environment=inside)
    assert to_queue.err == ""
    first, second = (json.loads(one.out)["id"] for one in (by_itself, to_queue))
    assert cluster.json("status", first)["scheduler"]["job_id"] == held
    assert cluster.json("status", second)["scheduler"]["job_id"] != held
    cluster.trainjob("cancel", second)
    cluster.wait(first, "COMPLETED")


@pytest.mark.parametrize(
    ("words", "figures"),
    [
        (("--time-limit", "01:00:00"), ("01:00:00", "ends in 00:")),
        (("--cluster", "short"), ("partition short", "is in gpu")),
        (("--instances", "8", "--hosts", "1"), ("8 instances", "4 CPUs")),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    cluster: Site, held: str, words: tuple[str, ...], figures: tuple[str, str]
) -> None:
    cluster.write_cluster("short", directives={"partition": "short"})
    before = sorted(os.listdir(cluster.runs)) if cluster.runs.exists() else []
    ended = cluster.trainjob("submit", *ONE, *words, "--in", held, "--", sys.executable, "go.py", "0")
    assert ended.code == 1
    assert all(figure in ended.err for figure in figures), ended.err
    assert "--in none" in ended.err
    assert (sorted(os.listdir(cluster.runs)) if cluster.runs.exists() else []) == before


def test_a_rehearsal_plays_a_run_in_an_allocation_that_nobody_holds_yet(cluster: Site, no_stand_ins: None) -> None:
    (cluster.here / "go.py").write_text(SCRIPT)
    job = (*FOUR, "--in", "any")
    ended = cluster.trainjob("rehearse", *job, "--keep", "--json", "--", sys.executable, "go.py", "0")
    assert ended.code == 0, ended.err + ended.out
    verdict = json.loads(ended.out)
    assert (verdict["passed"], verdict["same_bytes"], verdict["attempts"]) == (True, True, 1)
    paths = RunPaths(verdict["folder"])
    assert paths.job_script.read_text() == cluster.trainjob("render", *job, "--", sys.executable, "go.py", "0").out
    for rank in range(4):
        assert f"rank {rank} of 4 in 1\n" in paths.rank_log(rank).read_text()
    refused = cluster.trainjob("submit", *job, "--", sys.executable, "go.py", "0")
    assert (refused.code, "--in any is for plan, render and rehearse" in refused.err) == (1, True)


def test_a_rehearsal_in_an_allocation_names_a_rank_that_dies_and_refuses_faults_of_jobs(cluster: Site) -> None:
    job = ("rehearse", "--cluster", "here", "--instances", "2", "--in", "any")
    ended = cluster.trainjob(*job, "--inject", "rank-death", "--json")
    assert json.loads(ended.out)["state"] == "FAILED"
    assert ended.code == 0, ended.err
    refused = cluster.trainjob(*job, "--inject", "preempt")
    assert "nothing starts a run inside an allocation again" in refused.err


def test_an_allocation_that_is_none_is_refused(cluster: Site, held: str) -> None:
    for job, figure in (("999999", "no such job"), ("x; rm -rf /", "expected the number of a job")):
        ended = cluster.trainjob("submit", *ONE, "--in", job, "--", sys.executable, "go.py", "0")
        assert (ended.code, figure in ended.err) == (1, True), ended.err
    cluster.run("scancel", held)
    until(lambda: state_of(cluster, held) == "CANCELLED", "its end", poll_s=POLL_S)
    ended = cluster.trainjob("submit", *ONE, "--in", held, "--", sys.executable, "go.py", "0")
    assert "CANCELLED" in ended.err


def test_the_end_of_the_allocation_is_the_end_of_the_run_and_it_goes_on_in_another(cluster: Site, held: str) -> None:
    run = begun(cluster, held, *FOUR[2:])
    cluster.run("scancel", held)
    cluster.wait(run, "CANCELLED")
    assert logs(cluster, run).count("told to end") == 4
    refused = cluster.trainjob("resume", run)
    assert refused.code == 1
    assert "Traceback" not in refused.err
    other = allocation(cluster)
    assert cluster.trainjob("resume", run, "--in", other).code == 0
    until(lambda: f"in {other}" in logs(cluster, run), "ranks in the other job")
    cluster.trainjob("cancel", run)
    assert state_of(cluster, other) == "RUNNING"


def test_a_step_that_is_left_in_the_job_before_ends_when_the_run_goes_on_in_another(
    cluster: Site, no_stand_ins: None
) -> None:
    (cluster.here / "go.py").write_text(SCRIPT)
    before, after = (allocation(cluster, "--nodes=1") for _ in range(2))
    run = begun(cluster, before, *ONE[2:])
    cluster.trainjob("cancel", run)
    left = f"srun --jobid={before} --overlap --ntasks=1 --job-name={run} sleep 600 >/dev/null 2>&1 &"
    cluster.run("bash", "-c", left)
    until(lambda: len(steps(cluster, run)) == 1, "the step that is left", poll_s=POLL_S)
    resumed = cluster.trainjob("resume", run, "--in", after)
    assert resumed.code == 0, resumed.err
    assert {step.partition(".")[0] for step in steps(cluster, run)} == {after}
    assert state_of(cluster, before) == "RUNNING"
    cluster.trainjob("cancel", run)


def test_a_run_ends_by_itself_before_its_allocation_does(cluster: Site, no_stand_ins: None) -> None:
    (cluster.here / "go.py").write_text(SCRIPT)
    job = allocation(cluster, minutes=1)
    run = begun(cluster, job, *ONE[2:])
    cluster.wait(run, "STOPPED")  # asked to, before the end
    assert "told to end" in logs(cluster, run)


def follows_until_killed(cluster: Site, job: str, name: str) -> None:
    """Kill a client that follows its run once there is a run directory, by KILL, which no program can answer."""
    words = [TRAINJOB, "submit", *ONE, "--again", "--name", name, "--in", job, "--follow"]
    client = shlex.join([*words, "--", sys.executable, "go.py", "600"])
    kill = f"{client} & client=$!; until [ -e {cluster.runs}/*-{name} ]; do sleep 0.02; done; kill -KILL $client; wait"
    cluster.run("bash", "-c", kill)


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.full)])
def test_a_killed_client_leaves_a_run_of_true_state(cluster: Site, held: str, kills: int) -> None:
    for number in range(kills):
        name = f"k{kills}n{number}"
        follows_until_killed(cluster, held, name)
        (folder,) = cluster.runs.glob(f"*-{name}")
        run = folder.name
        # Either it never began, or it is a run like any other; never something that runs unseen.
        until(partial(seen_in, cluster, run, "RUNNING", "LOST"), "a state")
        cluster.trainjob("cancel", run)
        until(partial(seen_in, cluster, run, "CANCELLED", "LOST"), "its end")
        assert steps(cluster, run) == []
    assert state_of(cluster, held) == "RUNNING"
