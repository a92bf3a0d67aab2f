"""What is refused before queueing, beside a live Slurm over ssh: the message of each, and that nothing is left."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import TRAINJOB
from tests.support.slurm_site import DESCRIPTION, Site, site

pytestmark = pytest.mark.timeout(300)
GPUS = {"count": 8, "accelerator": "gpu", "accelerators": 8, "cpus": 8, "memory_gb": 500}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, needs: Callable[[str], Path]) -> Iterator[Site]:
    needs("slurm")
    with site(tmp_path_factory.mktemp("site"), needs("sshd")) as made:
        yield made


REFUSED: list[tuple[dict[str, Any], list[str], str]] = [
    (
        {"directives": {"partition": "gpux"}},
        [],
        "directives.partition is gpux, and login has no such partition. Nearest that works: directives.partition: gpu,",
    ),
    (
        {"nodes": {**GPUS, "cpus": 8}},
        ["--instances", "8", "--hosts", "1"],
        "the job takes 8 of gpu on a node, and a node of partition gpu has 4. Nearest that works: nodes.accelerators 4",
    ),
    (
        {"nodes": {**GPUS, "accelerators": 4}, "limits": {}},
        ["--instances", "12"],
        "the job takes 3 nodes, and partition gpu gives one job 2. Give --hosts 2",
    ),
    (
        {"nodes": {"count": 2, "cpus": 8, "memory_gb": 500}, "directives": {"partition": "gpu", "mem": "100G"}},
        [],
        "directives.mem amounts to 102400 MB a node, and a node of partition gpu has 16384. Nearest that works:",
    ),
    (
        {"time_limit": "05:00:00", "limits": {}},
        [],
        "time limit 05:00:00 is above the 2:00:00 of partition gpu. Nearest that works: --time-limit 2:00:00",
    ),
    ({"required_directives": ["account"]}, [], "lacks directives.account: add them"),
    ({"python": "/nowhere/python"}, [], "/nowhere/python is not an interpreter that can be started on login"),
    ({"runs_dir": "/etc/passwd/runs"}, [], "/etc/passwd is not a folder. Set runs_dir to a folder"),
]


@pytest.mark.parametrize(("changes", "flags", "message"), REFUSED, ids=[message[:40] for *_, message in REFUSED])
def test_refused_before_submission(cluster: Site, changes: dict[str, Any], flags: list[str], message: str) -> None:
    cluster.write_cluster("bad", ssh=True, **changes)
    ended = cluster.trainjob("submit", "--cluster", "bad", "--task", "digits-cnn", *(flags or ["--instances", "2"]))
    assert (ended.code, ended.out) == (1, "")
    assert message in ended.err
    assert cluster.json("list") == []
    assert cluster.run("squeue", "--noheader", "--states=all").out == ""
    assert not cluster.runs.exists()


def test_check_is_a_verdict_for_machines_and_says_when_it_would_start(cluster: Site) -> None:
    verdict = cluster.json("check", "--cluster", "far", "--instances", "2", "--ask-controller")
    assert (verdict["ok"], verdict["problems"]) == (True, [])
    assert verdict["expected_start"].startswith("20")
    cluster.write_cluster("bad", ssh=True, directives={"partition": "gpu", "licenses": "none:3"})
    verdict = cluster.json("check", "--cluster", "bad", "--instances", "2", "--ask-controller")
    assert [problem["code"] for problem in verdict["problems"]] == ["slurm"]
    assert "sbatch on login says: " in verdict["problems"][0]["text"]


def test_check_does_not_talk_to_the_controller_unasked(cluster: Site) -> None:
    for program in ("sinfo", "sbatch", "squeue"):
        cluster.record(program)
    try:
        assert cluster.json("check", "--cluster", "far", "--instances", "2")["ok"]
        # Which asks no controller: it says whether this Slurm belongs to a cluster.
        assert [cluster.calls(program) for program in ("sinfo", "sbatch", "squeue")] == [["--version"], [], []]
    finally:
        for program in ("sinfo", "sbatch", "squeue"):
            cluster.real(program)


def test_check_names_a_login_node_that_cannot_be_reached(cluster: Site) -> None:
    cluster.write_cluster("bad", ssh="nowhere.invalid")
    verdict = cluster.json("check", "--cluster", "bad", "--instances", "2")
    assert [problem["code"] for problem in verdict["problems"]] == ["unreachable"], verdict


def test_a_task_is_imported_over_there_with_the_files_that_would_go(cluster: Site) -> None:
    task = "class T:\n  def build_model(self): ...\n  def open_data(self, p): ...\n  def loss(self, a, b): ...\n"
    (cluster.here / "mine.py").write_text(task)
    try:
        assert cluster.json("check", "--cluster", "far", "--instances", "2", "--task", "mine:T")["ok"]
        (problem,) = cluster.json("check", "--cluster", "far", "--instances", "2", "--task", "mine:U")["problems"]
        assert problem["text"] == (
            f"task mine:U can't be imported by {sys.executable} on login: module mine (mine.py) has no U: it has T"
        )
    finally:
        (cluster.here / "mine.py").unlink()


def test_a_cluster_file_is_drafted_from_the_live_cluster(cluster: Site) -> None:
    drafted = cluster.json("cluster", "init", "live", "--from-slurm", "--ssh", "login")
    assert ([place["key"] for place in drafted["fill_in"]], drafted["refused"]) == (["runs_dir"], None)
    shown = json.loads(cluster.trainjob("cluster", "show", "live", "--json").out)
    assert shown["nodes"] == {
        "name": None,
        "directives": {},
        "gres": None,
        "count": 2,
        "accelerator": "gpu",
        "accelerators": 4,
        "type": None,
        "cpus": 8,
        "memory_gb": 16,
        "threads_per_core": 1,
    }
    assert shown["limits"] == {"min_nodes": 1, "max_nodes": 2, "max_time": "02:00:00"}
    assert shown["directives"] == {"partition": "gpu"}
    filled = (
        (cluster.here / "clusters" / "live.yaml")
        .read_text()
        .replace("# runs_dir: /shared/runs ", f"runs_dir: {cluster.runs} ")
    )
    (cluster.here / "clusters" / "live.yaml").write_text(filled)
    assert json.loads(cluster.trainjob("cluster", "check", "live", "--json").out)["missing"] == []


def test_a_slurm_whose_configuration_is_named_at_login_alone_is_found(cluster: Site, tmp_path: Path) -> None:
    words = ["env", "-u", "SLURM_CONF", TRAINJOB, "check", "--cluster", "here", "--instances", "2", "--ask-controller"]
    ended = cluster.run(*words)
    assert (ended.code, "establish a configuration source" in ended.err + ended.out) == (1, True), ended
    (tmp_path / "site.sh").write_text(f"echo Welcome\nexport SLURM_CONF={cluster.slurm.folder}/slurm.conf\n")
    cluster.slurm.run_as_root(["mount", "--bind", str(tmp_path), "/etc/profile.d"])
    ended = cluster.run(*words)
    assert ended.code == 0, ended


def test_the_first_submit_of_a_drafted_file_works_unedited(
    tmp_path_factory: pytest.TempPathFactory, needs: Callable[[str], Path]
) -> None:
    """Slurm keeps memory back, wants two nodes a job, and the user's scratch folder is on a network file system."""
    folder = tmp_path_factory.mktemp("limited")
    (partition, *_) = DESCRIPTION.partitions
    limited = replace(
        DESCRIPTION, settings={"MaxMemPerNode": "8192"}, partitions=[replace(partition, max_nodes=2, min_nodes=2)]
    )
    with site(folder, needs("sshd"), limited) as made:
        made.node.stand_in("df", 'echo "Filesystem Type"; echo "server:/scratch nfs4"')
        (folder / "scratch").mkdir()
        environment = {"SCRATCH": str(folder / "scratch")}
        ended = made.trainjob("cluster", "init", "live", "--from-slurm", environment=environment)
        assert (ended.code, "Nothing needs to be filled in." in ended.out) == (0, True), ended
        assert "Slurm takes a job of this file (sbatch --test-only)" in ended.out
        run = made.submit("live", "--", "true")
        made.wait(run, "COMPLETED")
        made.slurm.run_as_root(["scontrol", "update", "partition=gpu", "AllowAccounts=nobodys"])
        assert "Invalid account" in made.json("cluster", "init", "closed", "--from-slurm")["refused"]
