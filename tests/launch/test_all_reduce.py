"""The node check's all-reduce, by launchers that meet as they do under mpirun in a Slurm job, each on its own node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.render_cases import golden_requests, rendered
from trainjob.contract.paths import RunPaths
from trainjob.launch.rank_environment import free_port
from trainjob.records import causes

LIMIT_S = 120
LAUNCH = (
    "import sys; from trainjob.launch import main; "
    "from trainjob.launch.nodecheck import all_reduce, meeting; {}; "
    "sys.exit(main.main(sys.argv[1:]))"
)
# A process of a rank as nodecheck/all_reduce.py starts it: prints that it is ready, waits, and prints what it has seen.
CHILD = """
import json, os, sys
if os.environ["SLURMD_NODENAME"] == "{broken}":
    sys.exit("RuntimeError: CUDA error: uncorrectable ECC error encountered")
print(json.dumps({{"is_ready": True}}), flush=True)
sys.stdin.readline()
print(json.dumps({{"wrong": [], "has_wrong_sum": False, "mb_per_s": [[0, 1, 9e4]]}}))
"""


def launched(folder: Path, *patches: str, accelerator: str = "cpu", **environ: str) -> list[tuple[int, str]]:
    """Return the exit code of each rank's launcher and what it said; patches are what is different about a rank's."""
    (folder / "code").mkdir()
    job = rendered(golden_requests()["slurm-command"]).files["job.json"]
    (folder / "job.json").write_bytes(job.content)
    port, size = free_port(os.getpid()), len(patches)
    flags = ("--launcher", "openmpi", "--node-check", "on", "--accelerator", accelerator, str(folder))
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "TRAINJOB", "CUDA"))}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", LAUNCH.format(patch or "0"), *flags, "--", "touch", str(folder / f"began-{rank}")],
            env={
                **clean,
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "TRAINJOB_TOKEN": "abc",
                "OMPI_COMM_WORLD_RANK": str(rank),
                "OMPI_COMM_WORLD_SIZE": str(size),
                "OMPI_COMM_WORLD_LOCAL_RANK": "0",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
                "SLURM_JOB_ID": "7",
                "SLURMD_NODENAME": f"n{rank}",
                **environ,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, patch in enumerate(patches)
    ]
    output = [rank.communicate(timeout=LIMIT_S)[0] for rank in ranks]
    return [(rank.returncode, text) for rank, text in zip(ranks, output, strict=True)]


def begun(folder: Path) -> int:
    return len(list(folder.glob("began-*")))


def assert_blamed(folder: Path, ended: list[tuple[int, str]], node: str, why: str) -> None:
    assert [code for code, _ in ended] == [1] * len(ended), ended
    assert not begun(folder)
    line = f"node {node} did not pass the node check: {why}"
    paths = RunPaths(folder)
    assert paths.bad_node.read_text() == f"{node} {line}\n"
    assert paths.requeue.read_text() == "0\n"
    assert json.loads(paths.failure.read_text())["host"] == node
    cause = causes.of_run(paths)
    assert cause is not None
    assert (cause.code, cause.text) == ("node-check", line)


def test_ranks_begin_after_a_right_sum_and_the_slowest_pair_is_named(tmp_path: Path) -> None:
    ended = launched(tmp_path, "", "", "")
    assert [code for code, _ in ended] == [0, 0, 0], ended
    assert begun(tmp_path) == 3
    assert "node check: the all-reduce of 3 ranks on 3 nodes gave the right sum; slowest pair: n" in ended[0][1]
    assert not any(text for _, text in ended[1:])


def test_a_node_whose_numbers_arrive_wrong_is_named_and_avoided(tmp_path: Path) -> None:
    wrong = "all_reduce.contribution = lambda rank: [1 << 20] * 1024"
    ended = launched(tmp_path, "", "", wrong)
    assert_blamed(tmp_path, ended, "n2", "data that rank 2 contributes to an all-reduce arrives corrupted")


def test_a_node_that_gets_a_wrong_sum_is_named(tmp_path: Path) -> None:
    ended = launched(tmp_path, "", "all_reduce.expected_sum = lambda size: []", "")
    assert_blamed(tmp_path, ended, "n1", "rank 1 got a wrong sum of an all-reduce")


def test_two_nodes_without_a_connection(tmp_path: Path) -> None:
    ended = launched(tmp_path, "all_reduce.mb_per_s = lambda *place: None", "all_reduce.serve = lambda *_: None")
    assert_blamed(tmp_path, ended, "n1", "no connection between it and n0")


@pytest.mark.parametrize("broken", ["none", "n1"])
def test_on_gpus_a_process_of_each_rank_reduces(tmp_path: Path, broken: str) -> None:
    child = tmp_path / "child.py"
    child.write_text(CHILD.format(broken=broken))
    patch = f"all_reduce.CHILD = ({sys.executable!r}, {str(child)!r})"
    ended = launched(tmp_path, patch, patch, accelerator="gpu", CUDA_VISIBLE_DEVICES="0")
    if broken == "n1":
        error = "exit code 1: RuntimeError: CUDA error: uncorrectable ECC error encountered"
        assert_blamed(tmp_path, ended, "n1", f"an all-reduce ended there with: {error}")
    else:
        assert [code for code, _ in ended] == [0, 0], ended
        assert "slowest pair: n0 and n1 with 90 GB/s" in ended[0][1]
        assert begun(tmp_path) == 2


def test_without_torch_the_ranks_begin_after_a_line_that_says_so(tmp_path: Path) -> None:
    patch = "all_reduce.importlib.util.find_spec = lambda name: None"
    ended = launched(tmp_path, "", patch, accelerator="gpu", CUDA_VISIBLE_DEVICES="0")
    assert [code for code, _ in ended] == [0, 0], ended
    assert "all-reduce skipped: " in ended[0][1]
    assert "on n1 has no torch" in ended[0][1]
    assert begun(tmp_path) == 2


def test_a_launcher_that_does_not_come_keeps_nobody_from_starting(tmp_path: Path) -> None:
    ended = launched(tmp_path, "all_reduce._MEET_S = 0.5", "all_reduce._meet = lambda *_: sys.exit(0)")
    assert ended[0][0] == 0, ended
    assert "all-reduce skipped: 1 of 2 launchers had come after 1 s" in ended[0][1]
    assert begun(tmp_path) == 1
