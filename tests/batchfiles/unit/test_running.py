"""How long a rehearsed batch file may do nothing."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from batchfiles.rehearsal import following, requested_cluster, running
from batchfiles.rehearsal.recording import EndedJob
from batchfiles.slurm.request import SiteFacts
from batchfiles.slurm.script import script_of
from tests.support.cases import each
from trainjob.contract import clock


@pytest.mark.parametrize(("nodes", "is_stalled"), [("--nnodes=2", True), ("--nnodes=1:2", False)])
def test_a_range_of_nodes_has_the_time_that_torchrun_waits_for_them(
    nodes: str, is_stalled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    job: Any = SimpleNamespace(processes=[SimpleNamespace(torch="2.13.0", command=f"torchrun {nodes} train.py")])
    watch = following.JobWatch(job)
    began = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: began + 35.0)
    assert watch.is_stalled() == is_stalled


@pytest.mark.parametrize(("text", "waited"), [("sleep 5\nsleep 30\n", 30.0), ("sleep 1d\nsleep 86400 &\n", 0.0)])
def test_a_file_that_sleeps_has_its_time(text: str, waited: float, monkeypatch: pytest.MonkeyPatch) -> None:
    script = script_of(Path("train.sbatch"), f"#!/bin/bash\n{text}".encode(), SiteFacts())
    assert running.longest_sleep(script) == waited
    watch = following.JobWatch(SimpleNamespace(processes=[SimpleNamespace(torch="2", command="x")]), waited)  # type: ignore[arg-type]
    began = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: began + 26.0)
    assert watch.is_stalled() == (waited == 0.0)


@pytest.mark.parametrize(
    ("log", "needed", "moved"),
    [
        ("/nowhere/logs/%j.out", True, True),
        ("/nowhere/here/logs/%j.out", True, False),  # below a folder of --map
        ("logs/%j.out", True, False),  # a fault of the file
        ("logs/%j.out", False, True),
        ("%j.out", False, False),
        ("/dev/null", True, False),
    ],
)
def test_a_log_that_only_the_cluster_has_a_folder_for_goes_elsewhere(
    log: str, needed: bool, moved: bool, tmp_path: Path
) -> None:
    script = script_of(Path("train.sbatch"), f"#!/bin/bash\n#SBATCH -o {log}\npython train.py\n".encode(), SiteFacts())
    run = running.BatchRun(
        script,
        tmp_path,
        requested_cluster.cluster_from(script),
        maps={"/nowhere/here": tmp_path},
        needs_log_folder=needed,
    )
    sent: list[list[str]] = []
    slurm: Any = SimpleNamespace(
        run=lambda words, **_: sent.append(words) or SimpleNamespace(code=1),
        description=SimpleNamespace(node_names=["node1"]),
    )
    running.submit_held(run, slurm, {})
    assert (f"--output={tmp_path}/slurm-%j.out" in sent[0]) == moved


@pytest.mark.parametrize(
    ("array", "ends"),
    [
        ("0-9", "0,9"),
        ("5-9:2%4", "5,9"),
        ("7,1-3", "7,3"),
        ("0-100000", "0,100000"),
        ("1,2", None),
        ("3", None),
        ("$N", None),
    ],
)
def test_the_first_and_last_elements_of_an_array_are_rehearsed(array: str, ends: str | None, tmp_path: Path) -> None:
    script = script_of(Path("train.sbatch"), f"#!/bin/bash\n#SBATCH -a {array}\npython a.py\n".encode(), SiteFacts())
    sent: list[list[str]] = []
    slurm: Any = SimpleNamespace(
        run=lambda words, **_: sent.append(words) or SimpleNamespace(code=1),
        description=SimpleNamespace(node_names=["node1"]),
    )
    running.submit_held(running.BatchRun(script, tmp_path, requested_cluster.cluster_from(script)), slurm, {})
    assert [word for word in sent[0] if "array" in word] == ([f"--array={ends}"] if ends else [])


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("#!/bin/bash\n. /nowhere/a.sh\ncd /nowhere/b\n", ([], [])),
        ("#!/bin/bash\n#SBATCH -D /nowhere/c/\n", ([], ["/nowhere/c"])),
        ("#!/bin/sh\n. /nowhere/a.sh\ncd /nowhere/b\ncd /\n. ./c\n", (["/nowhere/a.sh"], ["/nowhere/b"])),
        ("#!/usr/bin/env sh\n. /nowhere/here/a.sh\ncd $B\n", ([], [])),
        ("#!/bin/bash\nbash /nowhere/a.sh 1\nbash -c x\nsh b.sh\n", (["/nowhere/a.sh"], [])),
    ],
)
def test_what_only_the_cluster_has_is_known_before_sh_would_end(
    text: str, missing: tuple[list[str], list[str]], tmp_path: Path
) -> None:
    script = script_of(Path("train.sbatch"), text.encode(), SiteFacts())
    run = running.BatchRun(script, tmp_path, requested_cluster.cluster_from(script), maps={"/nowhere/here": tmp_path})
    assert running.missing_here(run) == missing


@pytest.mark.parametrize(
    ("of_job", "is_one"),
    [
        ({"state": "NODE_FAIL"}, True),
        ({"state": "PENDING", "reason": "launch failed requeued held"}, True),
        ({"state": "FAILED", "output": "srun: error: Unable to confirm allocation for job 7: Invalid job id\n"}, True),
        ({"state": "FAILED", "output": "srun: error: node1: task 0: Exited with exit code 1\n"}, False),
        ({"state": "COMPLETED"}, False),
    ],
)
def test_the_logs_of_slurm_are_for_what_slurm_does_wrong(of_job: dict[str, Any], is_one: bool) -> None:
    facts: dict[str, Any] = {"reason": "None", "output": "", **of_job}
    job = EndedJob("7", exit_code=1, signal=0, nodes=("node1",), restarts=0, output_file="/p/log", **facts)
    assert running.is_slurms_fault([job]) is is_one
    assert running.is_slurms_fault([])


@each(
    ("line", "missing"),
    [
        ("srun site_wrapper exec bash -c 'python train.py'", ("site_wrapper",)),
        ("site_wrapper exec deepspeed train.py", ("site_wrapper",)),
        ("srun site_wrapper --image x.sif torchrun train.py", ("site_wrapper",)),
        ("srun env A=1 python train.py", ()),
        ("srun ./wrapper.sh python train.py", ()),  # of the project
        ("srun site_train --config python.yaml", ()),
        ("apptainer exec x.sif python train.py", ()),
        ("srun python2.9 train.py", ("python2.9",)),
        *([] if shutil.which("host") else [("A=$(host node7 | cut -f 4)\npython train.py", ("host",))]),
        ("which nowhere_cc bash\nif which nowhere_ld; then echo; fi\npython train.py", ("nowhere_cc",)),
        ("run() { srun python $1; }\nrun python", ()),
    ],
)
def test_a_program_that_starts_another_and_is_not_here_is_known(line: str, missing: tuple[str, ...]) -> None:
    script = script_of(Path("train.sbatch"), f"#!/bin/bash\n{line}\n".encode(), SiteFacts())
    assert running.missing_programs(script, sys.executable) == missing
