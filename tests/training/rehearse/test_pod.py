"""A pod rehearsed: the same bytes, anybody's poprun line, and a shell, with real processes."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from tests.support.local_runs import Here, command_of, marked, what_follows
from tests.support.printed_json import reported
from tests.support.programs import TRAINJOB
from tests.support.waiting import until

HELLO = """\
import popdist
import sys
sys.stdout.write(f"instance {popdist.getInstanceIndex()} device {popdist.getDeviceId()}\\n")
"""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def pod(here: Here) -> Here:
    here.write("hello.py", HELLO)
    return here


def test_the_same_bytes_run(pod: Here, tmp_path: Path) -> None:
    words = ("--cluster", "pod16", "--instances", "4", "--", "python", "hello.py", "a b")
    pod.run("render", "-o", str(tmp_path / "job"), *words)
    verdict = pod.json("rehearse", "--keep", *words)
    assert (verdict["passed"], verdict["state"], verdict["same_bytes"]) == (True, "COMPLETED", True)
    kept = Path(verdict["folder"])
    for name in ("job.sh", "job.json"):
        assert (kept / name).read_bytes() == (tmp_path / "job" / name).read_bytes()
    logs = sorted((kept / "logs").glob("rank-*.log"))
    assert [log.read_text().splitlines()[1] for log in logs] == [f"instance {n} device {24 + n}" for n in range(4)]


def test_anybodys_poprun_line(pod: Here) -> None:
    line = ("poprun", "--num-replicas", "8", "--num-instances", "4", "--ipus-per-replica", "2", "python", "hello.py")
    ended = pod.run("rehearse", "--cluster", "pod16", "--", *line)
    # By what was said: mpirun may put what two instances say on one line.
    found = sorted(re.findall(r"instance \d device \d\d", ended.stdout))
    assert found == [f"instance {n} device {24 + n}" for n in range(4)]


def test_its_exit_code_is_the_scripts(pod: Here) -> None:
    ended = pod.run("rehearse", "--cluster", "pod16", "--", "poprun", "python", "-c", "raise SystemExit(7)", code=7)
    assert "The instances ended with exit code 7" in ended.stderr


def test_a_script_that_fails_fails_the_rehearsal_and_says_which_rank(pod: Here) -> None:
    pod.write("bad.py", "import os, sys\nif os.environ['RANK'] == '1': sys.exit('no luck')\n")
    ended = pod.run("rehearse", "--cluster", "pod16", "--instances", "2", "--", "python", "bad.py", code=1)
    assert re.search(
        r"^FAILED: the job is FAILED\. rank 1 on \S+ failed first, with exit code 1: no luck$", ended.stdout, re.M
    )
    assert ended.stdout.count("no luck") == 2


def test_a_shell_has_them_and_the_next_command_has_not(pod: Here, tmp_path: Path) -> None:
    report = tmp_path / "told"
    shell = tmp_path / "shell"
    ask = f"command -v poprun >{report}; command -v vipu >>{report}\npython -c 'import poptorch' && exit 5\n"
    shell.write_text(f"#!/bin/sh\n{ask}")
    shell.chmod(0o755)
    pod.run("rehearse", "--cluster", "pod64", "--shell", code=5, environ={"SHELL": str(shell)})
    assert len(report.read_text().split()) == 2
    ended = pod.run("rehearse", "--cluster", "local", "--shell", code=1)
    assert "there are stand-ins for a pod's programs, or a Slurm cluster's GPUs, only" in ended.stderr


def test_devices_works_in_the_shell_of_a_rehearsed_pod(pod: Here, tmp_path: Path) -> None:
    (pod.project / "clusters").mkdir()
    (pod.project / "clusters" / "mine.yaml").write_text(
        "kind: ipu-pod\nipus: 4\nhosts: h1\nssh: {host: h1.nowhere.invalid}\n"
        "vipu: {server: ctl, partition: p4}\nnetwork: {interface: eno1}\n"
    )
    shell = tmp_path / "shell"
    shell.write_text(f"#!/bin/sh\nexec {TRAINJOB} devices --cluster mine --json >{tmp_path}/listed\n")
    shell.chmod(0o755)
    pod.run("rehearse", "--cluster", "mine", "--shell", environ={"SHELL": str(shell)})
    listed = reported((tmp_path / "listed").read_text())
    assert [one["where"] for one in listed] == ["p4 · 10.1.5.10"] * 4
    assert [one["device"] for one in listed] == [f"IPU {ipu}" for ipu in range(4)]


def test_a_partition_that_the_site_names_is_there(pod: Here) -> None:
    (pod.project / "clusters").mkdir()
    (pod.project / "clusters" / "mine.yaml").write_text(
        "kind: ipu-pod\nipus: 16\nhosts: h[1-2]\nvipu: {server: ctl, partition: p16}\nnetwork: {interface: eno1}\n"
    )
    verdict = pod.json("rehearse", "--keep", "--cluster", "mine", "--instances", "2", "--", "python", "hello.py")
    assert verdict["passed"]
    output = (Path(verdict["folder"]) / "logs" / "scheduler.out").read_text()
    assert "Partition 'p16' is in state PS_ACTIVE" in output
    assert not (Path(verdict["folder"]) / "partition").exists()


def test_ctrl_c_leaves_nothing(pod: Here) -> None:
    pod.write("stay.py", "import time\ntime.sleep(4321)\n")
    process = pod.start("rehearse", "--cluster", "pod4", "--instances", "2", "--", "python", "stay.py")

    def ours() -> list[int]:
        return [pid for pid in marked(pod.folder) if "stay.py" in command_of(pid)]

    until(lambda: len(ours()) >= 2, "ranks")
    os.killpg(process.pid, signal.SIGINT)
    what_follows(process)
    assert process.returncode == 130
    until(lambda: not ours(), "nothing left")
