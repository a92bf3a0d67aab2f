"""The stand-in V-IPU: what it keeps, and what it refuses, asked by vipu and by poprun."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.standin_programs import Pod, partition
from trainjob.machines import devices

SIXTEEN = ("--num-replicas=16", "--num-instances=4")


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


def test_a_partition_lives(pod: Pod) -> None:
    pod.run("vipu", "create", "partition", "p16", "--size", "16", "--reconfigurable", "--allocation", "default")
    assert "p16" in pod.run("vipu", "list", "partitions").stdout
    assert "State:           PS_ACTIVE" in pod.run("vipu", "get", "partition", "p16", "-H", "ctl").stdout
    configured = pod.run("vipu", "get", "partition", "p16", "--gcd", "0", "--ipuof-configs")
    assert "option --ipuof-configs has no meaning on this machine: ignored" in configured.stderr
    assert pod.run("vipu", "list", "ipu-attrs").stdout.count("board ipu index") == 64
    pod.run("vipu", "reset", "partition", "p16")
    pod.run("vipu", "remove", "partition", "p16")
    assert "not found" in pod.run("vipu", "get", "partition", "p16", code=1).stderr
    assert "stand-in" in pod.run("vipu", "--server-version").stdout
    assert " default       | ag0 ag1 " in pod.run("vipu", "list", "allocations").stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("p", "--size", "6"), "the size of a partition must be a power of two, and 6 is not"),
        (("p", "--size", "128"), "128 IPUs were requested, and 48 of 64 are free"),
        (("there", "--size", "4"), "partition 'there' already exists"),
        (("p", "--size", "4", "--allocation", "c9"), "allocation 'c9' not found; there is default"),
        (
            ("p", "--size", "4", "--reconfigurable", "--sync-type", "pod-native-default"),
            "a reconfigurable partition needs sync type c2-compatible, not pod-native-default",
        ),
        (("p", "--size", "4", "--num-gcds", "8"), "8 GCDs don't fit a partition of 4 IPUs"),
        (("p",), "the following arguments are required: --size"),
    ],
)
def test_what_is_not_created(pod: Pod, words: tuple[str, ...], message: str) -> None:
    pod.site(partitions={"there": partition(16)})
    assert message in pod.run("vipu", "create", "partition", *words, code=1).stderr


def test_anothers_partition_is_not_seen_and_can_not_be_taken(pod: Pod) -> None:
    pod.site(partitions={"theirs": partition(16, owner="somebody")})
    assert "theirs" not in pod.run("vipu", "list", "partitions").stdout
    assert "not found" in pod.run("vipu", "remove", "partition", "theirs", code=1).stderr
    ended = pod.poprun(*SIXTEEN, "--vipu-partition=theirs", "true", code=1)
    assert "partition 'theirs' already exists" in ended.stderr
    assert list(pod.partitions()) == ["theirs"]


def test_poprun_uses_a_partition_that_is_there_and_leaves_it(pod: Pod) -> None:
    pod.site(partitions={"p64": partition(64)})
    reported = pod.report(*SIXTEEN, "--vipu-partition=p64")
    assert reported[0]["IPUOF_VIPU_API_PARTITION_ID"] == "p64"
    assert list(pod.partitions()) == ["p64"]


def test_poprun_takes_the_only_one_and_won_t_choose_among_several(pod: Pod) -> None:
    pod.site(partitions={"one": partition(16)})
    assert pod.report(*SIXTEEN)[0]["IPUOF_VIPU_API_PARTITION_ID"] == "one"
    pod.site(partitions={"one": partition(16), "two": partition(16)})
    assert "several partitions exist (one, two)" in pod.poprun(*SIXTEEN, "true", code=1).stderr
    assert pod.report(*SIXTEEN, IPUOF_VIPU_API_PARTITION_ID="two")[0]["IPUOF_VIPU_API_PARTITION_ID"] == "two"


def test_poprun_makes_what_is_missing_and_removes_it_unless_told_otherwise(pod: Pod) -> None:
    pod.report(*SIXTEEN, "--vipu-partition=mine", "--vipu-allocation=default")
    assert pod.partitions() == {}
    pod.report(*SIXTEEN, "--vipu-partition=mine", "--remove-partition=0", "--sync-type=ST_POD_NATIVE_DEFAULT")
    made = pod.partitions()["mine"]
    assert (made["size"], made["sync_type"], made["reconfigurable"]) == (16, "pod-native-default", False)


def test_a_partition_that_is_too_small_is_updated_only_when_asked(pod: Pod) -> None:
    pod.site(partitions={"p8": partition(8)})
    ended = pod.poprun(*SIXTEEN, "--vipu-partition=p8", "true", code=1)
    assert "partition 'p8' has 8 IPUs and 16 replicas x 1 IPUs need 16: give --update-partition yes" in ended.stderr
    pod.report(*SIXTEEN, "--vipu-partition=p8", "--update-partition=yes")
    assert pod.partitions()["p8"]["size"] == 16


def test_a_partition_in_error_is_refused_and_a_reset_cures_it(pod: Pod) -> None:
    pod.site(partitions={"p16": partition(16, state="PS_ERROR")})
    ended = pod.poprun(*SIXTEEN, "--vipu-partition=p16", "--vipu-partition-attempts=2", "true", code=1)
    assert ended.stderr.count("is in state PS_ERROR\n") == 2
    assert "partition 'p16' is in state PS_ERROR, not PS_ACTIVE" in ended.stderr
    pod.report(*SIXTEEN, "--vipu-partition=p16", "--reset-partition=yes")


def test_a_server_that_gives_no_answer(pod: Pod) -> None:
    pod.site(delay_s=600)
    ended = pod.poprun(*SIXTEEN, "--vipu-server-timeout=1", "true", code=1)
    assert "the V-IPU server gave no answer within 1 s" in ended.stderr


PARTITIONS = """\
 Partition | Cluster | ILDs | GW Routing | ILD Routing | Size | GCDs | State
------------------------------------------------------------------------------
 p16       | default | 1    | DEFAULT    | DNC         | 16   | 1    | ACTIVE
 p64       | default | 1    | DEFAULT    | RINGSWNC    | 64   | 1    | ACTIVE
------------------------------------------------------------------------------
"""
DEVICES = """\
Graphcore device listing:
Partition: p2 [active]
-+- Id: [0], target: [Fabric], IPU-M host: [10.1.5.10], IPU#: [3]
-+- Id: [1], target: [Fabric], IPU-M host: [10.1.5.10], IPU#: [2]
-+- Id: [2], target: [Multi IPU]
 |--- Id: [0], DNC Id: [0], IPU-M host: [10.1.5.10], IPU#: [3]
 |--- Id: [1], DNC Id: [1], IPU-M host: [10.1.5.10], IPU#: [2]
"""


def test_tables_have_the_rules_of_the_user_guide(pod: Pod) -> None:
    pod.site(ipus=128, partitions={"p16": partition(16), "p64": partition(64)})
    assert pod.run("vipu", "list", "partitions").stdout == PARTITIONS
    heads = pod.run("vipu", "list", "allocations").stdout.splitlines()
    assert [heads[0][0], heads[2][0], heads[-1][0]] == ["-"] * 3
    assert heads[1].startswith(" Allocation ID | Agents")


def test_an_administrator_sees_what_users_do_not(pod: Pod) -> None:
    pod.site(ipus=16, partitions={"theirs": partition(16, owner="somebody")})
    assert " theirs " in pod.run("vipu-admin", "list", "partitions", "--api-host", "ctl").stdout
    assert len(pod.run("vipu-admin", "list", "agents").stdout.splitlines()) == 7
    assert " default | ag0 ag1 ag2 ag3 | 16" in pod.run("vipu-admin", "list", "clusters").stdout
    assert "invalid choice: 'agents'" in pod.run("vipu", "list", "agents", code=1).stderr
    pod.run("vipu-admin", "remove", "partition", "theirs")
    assert not pod.partitions()


def test_gc_info_lists_single_ipus_and_groups_of_them(pod: Pod) -> None:
    pod.site(partitions={"p2": partition(2)})
    assert pod.run("gc-info", "-l").stdout == DEVICES
    assert pod.run("gc-info", "--ipu-count").stdout == "2\n"
    assert "  board ipu index: 2\n" in pod.run("gc-info", "--device-info", "-d", "1").stdout
    assert "there are IPUs 0 to 1" in pod.run("gc-info", "-i", "-d", "7", code=1).stderr
    assert pod.run("gc-inventory").stdout.count("Device Info:") == 2


def test_without_a_partition_nothing_is_listed(pod: Pod) -> None:
    for words in (("gc-monitor",), ("gc-info", "-l"), ("gc-inventory",)):
        assert "no partition is active: vipu create partition makes one" in pod.run(*words, code=1).stderr
    pod.site(partitions={"p2": partition(2)})
    assert "partition 'p4' not found" in pod.run("gc-monitor", code=1, IPUOF_VIPU_API_PARTITION_ID="p4").stderr


# The first instance looks until both are there, and the other one stays until it has seen that.
LOOKS = """\
import os, subprocess, sys, time
for _ in range(600):
    if os.environ["POPDIST_REPLICA_INDEX_OFFSET"] == "0":
        shown = subprocess.run(["gc-monitor"], capture_output=True, text=True).stdout
        if shown.count("python") >= 8:
            with open(sys.argv[1] + ".part", "w") as stream:
                stream.write(shown)
            os.rename(sys.argv[1] + ".part", sys.argv[1])
    if os.path.exists(sys.argv[1]):
        break
    time.sleep(0.1)
"""


def test_gc_monitor_shows_the_boards_and_who_uses_them(pod: Pod, tmp_path: Path) -> None:
    pod.site(partitions={"p16": partition(16), "p2": partition(2)})
    idle = pod.run("gc-monitor").stdout
    assert "Partition: p16 [active] has 16 reconfigurable IPUs" in idle
    assert len({len(line) for line in idle.splitlines() if line.startswith(("+", "|"))}) == 1
    assert [(one.device, one.process) for one in devices.ipus(idle)] == [(f"IPU {ipu}", "") for ipu in range(16)]
    assert idle.endswith("No attached processes in partition p16\n")
    assert "Partition: p2 has 2 reconfigurable IPUs" in pod.run("gc-monitor", "--all-partitions").stdout
    words = ("--num-instances=2", "--num-replicas=4", "--ipus-per-replica=2", "--vipu-partition=p16")
    seen = tmp_path / "seen"
    pod.poprun(*words, sys.executable, "-c", LOOKS, str(seen))
    used = [one for one in devices.ipus(seen.read_text()) if one.process]
    assert [one.device for one in used] == [f"IPU {ipu}" for ipu in range(8)]
    assert len({one.process.split()[0] for one in used}) == 2
