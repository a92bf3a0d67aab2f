"""Runs on a pod's launch host over a real sshd, under the stand-in poprun that its SDK brings."""

from __future__ import annotations

import getpass
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.local_runs import first_line, what_follows
from tests.support.pod_site import STAY, PodSite, pod_site
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(420)
PARTITION = {
    "size": 16,
    "owner": getpass.getuser(),
    "state": "PS_ACTIVE",
    "reconfigurable": True,
    "gcds": 1,
    "allocation": "default",
    "sync_type": "c2-compatible",
}


@pytest.fixture
def site(tmp_path: Path, needs: Callable[[str], Path]) -> Iterator[PodSite]:
    needs("mpirun")
    with pod_site(tmp_path, needs("sshd")) as made:
        made.cluster()
        made.write("stay.py", STAY)
        yield made


def staying(site: PodSite) -> str:
    run = site.submit("--", "python", "stay.py")
    site.wait_until_ready(run)
    return run


def test_a_run_from_its_submission_to_its_end(site: PodSite) -> None:
    run = staying(site)
    assert site.state(run) == "RUNNING"
    own = "trainjob_" + "".join(sign if sign.isalnum() else "_" for sign in run)
    assert list(site.partitions()) == [own]
    followers = [site.start_trainjob("logs", run, *words, "--follow") for words in ((), ("--rank", "1"))]
    begun = [first_line(process) for process in followers]
    (site.there(run) / "release").touch()
    site.wait(run, "COMPLETED")
    assert site.partitions() == {}
    output, rank_output = (line + what_follows(process) for line, process in zip(begun, followers, strict=True))
    assert [process.returncode for process in followers] == [0, 0]
    assert "[poprun] " in output
    assert "[3] ready" in output
    assert rank_output == (site.there(run) / "logs" / "rank-0001.log").read_text()
    lines = site.json("logs", run, "--rank", "2")["lines"]
    reported = json.loads(next(line for line in lines if line.startswith("{")))
    assert (reported["POPDIST_REPLICA_INDEX_OFFSET"], reported["RANK"]) == ("8", "2")
    assert reported["IPUOF_VIPU_API_PARTITION_ID"] == own
    assert reported["SITE_POPART"].endswith("x")
    everything = site.trainjob("logs", run).stdout
    assert "[poprun] " in everything
    assert "[3] ready" in everything


def test_cancel_reaches_every_rank_and_the_partition_of_the_run_alone(site: PodSite) -> None:
    site.vipu_site(ipus=64, partitions={"other": PARTITION})
    run = staying(site)
    assert len(site.partitions()) == 2
    after = site.json("cancel", run, "--grace-s", "60")
    assert after["state"] == "CANCELLED"
    assert site.processes(run) == []
    assert list(site.partitions()) == ["other"]


def test_a_killed_poprun_fails_the_run_and_leaves_nothing(site: PodSite) -> None:
    run = staying(site)
    os.kill(site.find(run, "standins/pod/__main__.py")[0], signal.SIGKILL)
    site.wait(run, "FAILED")
    assert (site.there(run) / "exit_code").read_text() == "137\n"
    until(lambda: site.processes(run) == [], "nothing left")
    assert site.partitions() == {}


def test_a_killed_rank_is_named(site: PodSite) -> None:
    run = staying(site)
    ranks = site.find(run, "stay.py")
    victim = next(pid for pid in ranks if b"\0RANK=2\0" in Path(f"/proc/{pid}/environ").read_bytes() and _is_rank(pid))
    os.kill(victim, signal.SIGKILL)
    site.wait(run, "FAILED")
    now = site.json("status", run)
    assert (now["failure"]["rank"], now["failure"]["exit_code"], now["exit_code"]) == (2, 137, 137)
    until(lambda: site.processes(run) == [], "nothing left")


def _is_rank(pid: int) -> bool:
    return b"trainjob.launch\0" not in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_a_killed_script_is_lost_and_resume_ends_what_it_left(site: PodSite) -> None:
    run = staying(site)
    os.kill(site.find(run, "job.sh")[0], signal.SIGKILL)
    site.wait(run, "LOST")
    old = site.find(run, "stay.py")
    assert old
    (site.there(run) / "release").touch()
    site.trainjob("resume", run)
    site.wait(run, "COMPLETED")
    assert (site.there(run) / "attempt").read_text() == "2\n"
    assert not set(old) & set(site.processes(run))
    assert site.partitions() == {}


def test_cancel_of_a_lost_run_removes_the_partition_that_it_made(site: PodSite) -> None:
    run = staying(site)
    os.kill(site.find(run, "job.sh")[0], signal.SIGKILL)
    site.wait(run, "LOST")
    assert len(site.partitions()) == 1
    site.json("cancel", run)
    assert site.processes(run) == []
    assert site.partitions() == {}


def test_a_partition_in_error_fails_the_run_with_its_reason(site: PodSite) -> None:
    bad = {**PARTITION, "state": "PS_ERROR"}
    site.vipu_site(ipus=16, partitions={"p16": bad})
    site.cluster(vipu={"server": "ctl", "partition": "p16"})
    asked = ("--cluster", "pod", "--instances", "4", "--", "python", "stay.py")
    output = site.trainjob("submit", *asked, code=1).stderr
    assert "partition p16 is in state PS_ERROR, and a run needs PS_ACTIVE. Reset it: vipu reset partition p16" in output
    # It may as well break between the check and the run.
    site.vipu_site(ipus=16, partitions={"p16": {**bad, "state": "PS_ACTIVE"}})
    site.when_a_run_begins({"ipus": 16, "partitions": {"p16": bad}})
    run = site.submit("--", "python", "stay.py")
    site.wait(run, "FAILED")
    now = site.json("status", run)
    assert now["exit_code"] == 1
    assert any("partition 'p16' is in state PS_ERROR, not PS_ACTIVE" in line for line in now["script_tail"])
    assert list(site.partitions()) == ["p16"]


def test_a_vipu_time_out_fails_the_run_with_its_reason(site: PodSite) -> None:
    # The controller answers before the run as well, in half a second on a machine that is not busy.
    site.cluster(vipu={"server": "ctl", "allocation": "default", "timeout_s": 6, "remove_partition": False})
    site.vipu_site(ipus=16, partitions={})
    site.when_a_run_begins({"delay_s": 600})
    run = site.submit("--", "python", "stay.py")
    site.wait(run, "FAILED")
    assert any("gave no answer within 6 s" in line for line in site.json("status", run)["script_tail"])


def test_no_poprun_is_said(site: PodSite) -> None:
    (site.folder / "standin" / "poprun").unlink()
    output = site.trainjob("submit", "--cluster", "pod", "--instances", "4", "--", "python", "stay.py", code=1).stderr
    assert "there is no poprun on the PATH of host pod-host1, even with the SDK enabled. Set sdk.path" in output
    assert list(site.runs.iterdir()) == []


def test_a_host_that_is_down_is_not_a_run_that_has_ended(site: PodSite) -> None:
    run = staying(site)
    assert site.state(run) == "RUNNING"
    site.break_down()
    now = site.json("status", run)
    assert now["state"] == "RUNNING"
    assert "login" in now["note"]
    site.start()
    (site.there(run) / "release").touch()
    site.wait(run, "COMPLETED")


def test_it_goes_on_where_there_is_no_ssh(site: PodSite) -> None:
    site.environ["TRAINJOB_STANDIN_VIPU"] = str(site.folder / "vipu")
    site.environ["PATH"] = f"{site.folder / 'vipu-bin'}{os.pathsep}{site.environ['PATH']}"
    site.cluster("here", ssh=False)
    run = site.submit("--", "python", "stay.py", cluster="here")
    site.wait_until_ready(run)
    site.json("cancel", run)
    assert site.state(run) == "CANCELLED"
    assert site.processes(run) == []
