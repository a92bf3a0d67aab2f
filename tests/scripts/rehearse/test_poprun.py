"""The stand-in poprun: options, division rules, environment, tags, exit status."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.standin_programs import Pod, partition

pytestmark = pytest.mark.timeout(300)
LESSONS = ("--num-replicas", "8", "--num-instances", "4", "--ipus-per-replica", "2")


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


@pytest.fixture(params=["stand-in", "real"])
def either_pod(tmp_path: Path, request: pytest.FixtureRequest, needs: Callable[[str], Path]) -> Pod:
    """One that starts its instances itself, and one that has the real mpirun start them."""
    if request.param == "real":
        needs("mpirun")
    return Pod(tmp_path, mpirun=request.param == "real")


def test_the_lessons_instances_are_told_where_they_stand(pod: Pod) -> None:
    pod.site(ipus=16)
    reported = pod.report(*LESSONS, "--executable-cache-path=/cache")
    assert [one["POPDIST_REPLICA_INDEX_OFFSET"] for one in reported] == ["0", "2", "4", "6"]
    for number, one in enumerate(reported):
        assert {name: one[name] for name in one if name.startswith("POPDIST_")} == {
            "POPDIST_NUM_TOTAL_REPLICAS": "8",
            "POPDIST_NUM_IPUS_PER_REPLICA": "2",
            "POPDIST_NUM_LOCAL_REPLICAS": "2",
            "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": "1",
            "POPDIST_REPLICA_INDEX_OFFSET": str(2 * number),
            "POPDIST_LOCAL_INSTANCE_INDEX": str(number),
            "POPDIST_EXECUTABLE_CACHE_PATH": "/cache",
        }
        assert one["OMPI_COMM_WORLD_RANK"] == str(number)
        assert json.loads(one["POPLAR_TARGET_OPTIONS"])["instanceSize"] == "4"
    assert len({one["TRAINJOB_STANDIN_MEETING"] for one in reported}) == 1


def test_ipuof_is_told_of_the_partition(pod: Pod) -> None:
    pod.site(ipus=128, partitions={"p128": partition(128)})
    options = ("--vipu-server-host=ctl", "--vipu-server-port=99", "--vipu-server-timeout", "600")
    reported = pod.report("--num-replicas=128", "--num-instances=4", "--vipu-partition=p128", *options)
    assert [one["IPUOF_VIPU_API_GCD_ID"] for one in reported] == ["0", "0", "1", "1"]
    assert {name: reported[0][name] for name in reported[0] if name.startswith("IPUOF_")} == {
        "IPUOF_VIPU_API_HOST": "ctl",
        "IPUOF_VIPU_API_PORT": "99",
        "IPUOF_VIPU_API_TIMEOUT": "600",
        "IPUOF_VIPU_API_PARTITION_ID": "p128",
        "IPUOF_VIPU_API_GCD_ID": "0",
        "IPUOF_LOG_LEVEL": "WARN",
    }
    assert reported[0]["TRAINJOB_STANDIN_IPUS"] == "128"


def test_hosts_are_names_and_each_counts_its_own_instances(pod: Pod) -> None:
    reported = pod.report("--host=a[1-2]", "--num-replicas=4", "--num-instances=4", MASTER_ADDR="a1")
    assert [one["POPDIST_LOCAL_INSTANCE_INDEX"] for one in reported] == ["0", "1", "0", "1"]
    assert [one["OMPI_COMM_WORLD_LOCAL_RANK"] for one in reported] == ["0", "1", "0", "1"]
    assert {one["OMPI_COMM_WORLD_LOCAL_SIZE"] for one in reported} == {"2"}
    assert {one["MASTER_ADDR"] for one in reported} == {"127.0.0.1"}


def test_real_mpirun_tells_the_same_and_arguments_arrive(tmp_path: Path, needs: Callable[[str], Path]) -> None:
    needs("mpirun")
    pod = Pod(tmp_path, mpirun=True)
    words = ("a b", "it's", "$HOME", "--", "näh")
    local = ("--mpi-local-args=-x MINE -x SAID=too", "--mpi-global-args", "--mca btl_tcp_if_include nowhere0")
    found = pod.instances(*LESSONS, "--host", "a,b", *local, arguments=words, MINE='{"a": "b c"}')
    assert [arguments for _, arguments in found] == [list(words)] * 4
    reported = [environment for environment, _ in found]
    assert [one["POPDIST_REPLICA_INDEX_OFFSET"] for one in reported] == ["0", "2", "4", "6"]
    assert [one["OMPI_COMM_WORLD_LOCAL_RANK"] for one in reported] == ["0", "1", "0", "1"]
    assert {(one["MINE"], one["SAID"]) for one in reported} == {('{"a": "b c"}', "too")}


def test_it_runs_under_the_oldest_python(tmp_path: Path, needs: Callable[[str], Path]) -> None:
    pod = Pod(tmp_path, python=str(needs("python3.8")))
    pod.run("vipu", "create", "partition", "p", "--size", "16")
    assert len(pod.report(*LESSONS)) == 4


def test_the_first_failing_instances_status_is_poprun_s(either_pod: Pod) -> None:
    script = (
        "import os, sys, time; rank = os.environ['OMPI_COMM_WORLD_RANK']; rank == '2' and sys.exit(9); time.sleep(3000)"
    )
    # Long before the others would have ended by themselves.
    either_pod.poprun(*LESSONS, sys.executable, "-c", script, code=9)
    assert either_pod.partitions() == {}


def test_only_one_instance_is_shown(either_pod: Pod) -> None:
    script = "import os, sys; print('hello', os.environ['OMPI_COMM_WORLD_RANK']); print('sorry', file=sys.stderr)"
    ended = either_pod.poprun(*LESSONS, "--only-output-from-instance", "1", sys.executable, "-c", script)
    assert {line[:14] for line in ended.stdout.splitlines() if line.startswith("[1,")} == {"[1,1]<stdout>:"}
    assert "errors of other instances than 1 are not shown" in ended.stderr
    assert "[1,0]" not in ended.stderr


def test_offline_no_partition_is_taken(pod: Pod) -> None:
    reported = pod.report(*LESSONS, "--offline-mode=on")
    assert not [name for name in reported[0] if name.startswith("IPUOF_VIPU")]
    assert pod.partitions() == {}


def test_the_topology_table(pod: Pod) -> None:
    ended = pod.poprun(*LESSONS, "--print-topology", "yes", "--host=a,b", "true")
    rows = {cells[1].strip(): [cell.strip() for cell in cells[2:-1]] for cells in _cells(ended.stdout)}
    assert rows == {
        "hosts": ["a", "b"],
        "ILDs": ["0"],
        "instances": ["0", "1", "2", "3"],
        "replicas": [str(number) for number in range(8)],
    }
    widths = {len(line.strip()) for line in ended.stdout.splitlines() if line.startswith("|")}
    assert len(widths) == 1


def _cells(output: str) -> list[list[str]]:
    lines = (line.split("|") for line in output.splitlines())
    return [cells for cells in lines if len(cells) > 3]


def test_it_says_what_it_is_once_and_speaks_as_poprun_does(pod: Pod) -> None:
    ended = pod.poprun(*LESSONS, "--numa-aware=yes", "--process-placement", "spreadnuma", "true")
    assert ended.stderr.count("is a stand-in") == 1
    lines = [line for line in ended.stderr.splitlines() if "POPRUN" in line]
    assert all(re.match(r"\d\d:\d\d:\d\d\.\d{3} \d+ POPRUN \[[IWED]\] .", line) for line in lines)
    assert "option --numa-aware has no meaning on this machine: ignored" in ended.stderr
    assert "option --process-placement has no meaning on this machine: ignored" in ended.stderr


REFUSED = {
    "uneven": (("--num-replicas=3", "--num-instances=2"), "num-replicas (3) is not divisible by num-instances (2)"),
    "too-many": (("--num-replicas=2", "--num-instances=4"), "4 instances, 2 replicas"),
    "hosts": (("--num-replicas=4", "--num-instances=4", "--host=a,b,c"), "number of hosts (3)"),
    "six": (("--ipus-per-replica=6",), "ipus-per-replica must be 1, 2, 4, 8 or 16, and is 6"),
    "ilds": (("--num-replicas=4", "--num-instances=2", "--num-ilds=4"), "4 ILDs, 2 instances"),
    "unknown": (("--num-replica=2",), "unrecognised option '--num-replica': is --num-replicas meant?"),
    "no-number": (("--num-replicas=two",), "option --num-replicas: read 'two', expected a whole number"),
    "no-choice": (("--offline-mode=maybe",), "option --offline-mode: read 'maybe', expected yes or no"),
    "twice": (("--host=a,a", "--num-replicas=2", "--num-instances=2"), "names no host, or one twice"),
    "quotes": (("--mpi-local-args=-x 'A",), "No closing quotation"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(tmp_path: Path, needs: Callable[[str], Path], case: str) -> None:
    if case == "quotes":
        needs("mpirun")
    options, message = REFUSED[case]
    ended = Pod(tmp_path, mpirun=case == "quotes").poprun(*options, "true", code=1)
    assert "POPRUN [E]" in ended.stderr
    assert message in ended.stderr


def test_a_program_is_needed(pod: Pod) -> None:
    assert "no program was given" in pod.poprun(*LESSONS, code=1).stderr


def test_options_come_from_a_file_and_the_command_line_overrides_it(pod: Pod, tmp_path: Path) -> None:
    saved = tmp_path / "poprun.conf"
    pod.poprun(*LESSONS, "--export-config", str(saved), "true")
    assert "is there already" in pod.poprun(*LESSONS, "--export-config", str(saved), "true", code=1).stderr
    reported = pod.report("--import-config", str(saved), "--num-instances=2")
    assert [(one["POPDIST_NUM_LOCAL_REPLICAS"], one["POPDIST_NUM_IPUS_PER_REPLICA"]) for one in reported] == [
        ("4", "2")
    ] * 2


def test_term_ends_the_instances_and_gives_the_partition_back(either_pod: Pod) -> None:
    words = ["poprun", *LESSONS, sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(300)"]
    process = subprocess.Popen(words, env=either_pod.environ, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert "ready" in process.stdout.readline()
    assert [one["size"] for one in either_pod.partitions().values()] == [16]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=200)
    assert process.returncode == 128 + signal.SIGTERM
    assert either_pod.partitions() == {}
