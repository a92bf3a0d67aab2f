"""A private Slurm comes up, is the twin of its cluster file, keeps to itself, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.programs import TRAINJOB, ran
from tests.support.slurm_jobs import POLL_S, is_over
from tests.support.waiting import until
from trainjob.contract.errors import UserError
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.kinds.table import cluster_of
from trainjob.machines.process import CommandError
from trainjob.rehearse.slurm import faults, private, root
from trainjob.rehearse.slurm.description import Description, description_of
from trainjob.rehearse.slurm.private import PrivateSlurm, private_slurm

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def slurm(needs: Callable[[str], Path]) -> Iterator[PrivateSlurm]:
    needs("slurm")
    with private_slurm(description_of(_cluster(), nodes_needed=2)) as made:
        yield made


def _cluster() -> SlurmCluster:
    found = cluster_of(
        {
            "kind": "slurm",
            "nodes": {
                "count": 5,
                "accelerator": "gpu",
                "accelerators": 4,
                "type": "a100",
                "cpus": 64,
                "memory_gb": 500,
            },
            "limits": {"max_nodes": 3, "max_time": "24:00:00"},
            "directives": {"partition": "gpu", "constraint": "ib&a100"},
        }
    )
    assert isinstance(found, SlurmCluster)
    return found


def _finished(slurm: PrivateSlurm, *options: str, script: str, folder: Path, **environment: str) -> str:
    output = folder / "output"
    asked = ["sbatch", "--parsable", f"--output={output}", *options, f"--wrap={script}"]
    job = slurm.run(asked, environment=environment).text.strip()
    until(lambda: is_over(slurm, job), "the job to end", poll_s=POLL_S)
    return output.read_text()


def test_has_the_nodes_and_limits_of_its_cluster_file(slurm: PrivateSlurm) -> None:
    nodes = slurm.run(["sinfo", "-h", "-N", "-p", "gpu", "-o", "%N %T %G %c %m %f"]).text.splitlines()
    resources = "gpu:a100:4 64 512000 ib,a100"
    at_work = [f"node{number} idle {resources}" for number in (1, 2, 3)]
    assert nodes == [*at_work, *(f"node{number} down {resources}" for number in (4, 5))]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--gres=gpu:5", "Requested node configuration is not available"),
        ("--partition=nowhere", "invalid partition"),
        ("--time=25:00:00", "time limit"),
        ("--nodes=4", "node"),
        ("--mem=501G", "^`sbatch .*configuration is not available"),
    ],
)
def test_refuses_what_the_site_would_refuse(slurm: PrivateSlurm, option: str, message: str) -> None:
    with pytest.raises(CommandError, match=f"(?i){message}"):
        slurm.run(["sbatch", "--test-only", option, "--wrap=true"])


def test_ranks_get_their_devices_and_node_names(slurm: PrivateSlurm, tmp_path: Path) -> None:
    message = _finished(
        slurm,
        *("--nodes=2", "--ntasks-per-node=2", "--gres=gpu:a100:4"),
        script="srun sh -c 'echo \"$SLURM_PROCID $(hostname) $CUDA_VISIBLE_DEVICES\"'",
        folder=tmp_path,
    )
    assert sorted(message.splitlines()) == [
        f"{rank} {node} 0,1,2,3" for rank, node in enumerate(("node1", "node1", "node2", "node2"))
    ]


def test_names_that_are_exported_reach_a_job_that_asks_for_none(slurm: PrivateSlurm, tmp_path: Path) -> None:
    script = tmp_path / "job"
    script.write_text('#!/bin/sh\n#SBATCH --export=NONE\necho "$REDIRECT|${OTHER-unset}"\n')
    output = tmp_path / "output"
    environment = {"SBATCH_EXPORT": "REDIRECT,SBATCH_EXPORT", "REDIRECT": "a, b", "OTHER": "no"}
    slurm.run(["sbatch", f"--output={output}", str(script)], environment=environment)
    until(lambda: output.exists() and output.read_text(), "the job's output")
    assert output.read_text() == "a, b|unset\n"


def test_two_at_once_do_not_meet(slurm: PrivateSlurm) -> None:
    with private_slurm(Description(nodes=1)) as other:
        assert other.run(["sinfo", "-h", "-o", "%D"]).text.split() == ["1"]
        assert slurm.run(["sinfo", "-h", "-p", "gpu", "-o", "%D"]).text.split() == ["5"]
        assert len({slurm.folder, other.folder}) == 2


def test_a_daemon_can_be_killed_while_its_ranks_live_on(needs: Callable[[str], Path]) -> None:
    needs("slurm")
    with private_slurm(Description(nodes=1)) as slurm:
        slurm.run(["sbatch", "--output=/dev/null", "--wrap=sleep 600"])
        until(lambda: slurm.run(["pgrep", "-x", "sleep"], check=False).code == 0, "the job to begin", poll_s=POLL_S)
        faults.kill_daemon(slurm, "node1")
        until(lambda: slurm.run(["pgrep", "-x", "slurmd"], check=False).code != 0, "slurmd to end", poll_s=POLL_S)
        assert slurm.run(["pgrep", "-x", "sleep"]).text


def _processes_that_name(folder: Path) -> list[str]:
    lines = ran(["ps", "-ww", "-e", "-o", "pid,stat,args"], code=0).stdout
    return [line for line in lines.splitlines() if str(folder) in line and " Z" not in line]


def _fail(slurm: PrivateSlurm, seen: list[PrivateSlurm]) -> None:
    assert _processes_that_name(slurm.folder)
    seen.append(slurm)
    raise ZeroDivisionError


def test_leaves_nothing_behind_after_success_and_failure(needs: Callable[[str], Path]) -> None:
    needs("slurm")
    seen: list[PrivateSlurm] = []
    with pytest.raises(ZeroDivisionError), private_slurm(Description(nodes=1)) as slurm:
        _fail(slurm, seen)
    (slurm,) = seen
    assert not slurm.folder.exists()
    assert not _processes_that_name(slurm.folder)
    assert not Path(f"/proc/{slurm.first_process}").exists()


_OWNER = """
import sys, time
from trainjob.rehearse.slurm.description import Description
from trainjob.rehearse.slurm.private import private_slurm
with private_slurm(Description(nodes=1)) as slurm:
    slurm.run(["sbatch", "--output=/dev/null", "--wrap=sleep 600"])
    print(slurm.folder, slurm.first_process, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_leaves_nothing_behind_when_it_is_ended(needs: Callable[[str], Path], how: signal.Signals) -> None:
    needs("slurm")
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as owner:
        assert owner.stdout is not None
        name, first = owner.stdout.readline().split()
        folder = Path(name)
        owner.send_signal(how)
    until(lambda: not Path(f"/proc/{first}").exists() and not _processes_that_name(folder), "all of it to end")
    if how == signal.SIGKILL:
        assert folder.exists()
        private.remove_leftovers()
    assert not folder.exists()


def test_leaves_the_folder_of_one_that_lives(slurm: PrivateSlurm) -> None:
    private.remove_leftovers()
    assert (slurm.folder / "slurm.conf").exists()


def test_says_what_it_says_when_it_does_not_come_up(
    needs: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("slurm")
    monkeypatch.setattr(private, "READY_WITHIN_S", 20.0)
    with (
        pytest.raises(UserError, match="private Slurm"),
        private_slurm(Description(settings={"SelectType": "select/none-such"})),
    ):
        pass


def test_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(root, "FOLDERS", ())
    with pytest.raises(UserError, match="apt-get install slurm-wlm munge iproute2"):
        root.refuse_where_it_cannot_run(Description())


def test_a_node_knows_itself_by_an_address_that_no_other_reaches_as_debians_do(
    slurm: PrivateSlurm, tmp_path: Path
) -> None:
    script = "srun getent hosts node1 node2"
    message = _finished(slurm, "--nodes=2", "--exclude=node3", script=script, folder=tmp_path).splitlines()
    assert sorted(line.split()[0] for line in message) == ["10.213.0.1", "10.213.0.1", "127.0.1.1", "127.0.1.1"]


def test_an_early_failure_is_told_once(needs: Callable[[str], Path], tmp_path: Path) -> None:
    needs("slurm")
    (tmp_path / "train.py").write_text('print("begins", flush=True)\nraise ValueError("the loss is strange")\n')
    job = ("--cluster", "slurm-gpu", "--no-gpus", "--instances", "4", "--", "python3", "train.py")
    shown = ran((TRAINJOB, "rehearse", *job), folder=tmp_path, environ={**os.environ, "SLURM_CONF": ""}, code=1).stdout
    assert (shown.count("Traceback"), shown.count("ValueError: the loss is strange")) == (1, 2)
    assert re.search(r"^ranks \S+ printed the same traceback as rank \d$", shown, re.MULTILINE)
    verdict = (
        r"^FAILED: the job is FAILED\. rank \d on node1 failed first, with exit code 1\nwhy: rank \d on host node1 "
    )
    assert re.search(verdict + "raised ", shown, re.MULTILINE)
    assert (shown.count("failed with exit code"), shown.count("srun: "), shown.count("expected: ")) == (0, 0, 0)
    assert "next: trainjob logs " in shown.splitlines()[-1]
