"""The stand-in V-IPU: what it keeps, and what it refuses, asked by vipu and by poprun."""

from __future__ import annotations

from pathlib import Path

import pytest
from standin_programs import Pod, partition

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
    assert len(pod.run("vipu", "list", "ipu-attrs").stdout.splitlines()) == 64
    pod.run("vipu", "reset", "partition", "p16")
    pod.run("vipu", "remove", "partition", "p16")
    assert "not found" in pod.run("vipu", "get", "partition", "p16", code=1).stderr
    assert "stand-in" in pod.run("vipu", "--server-version").stdout
    assert pod.run("vipu", "list", "allocations").stdout == "default\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("p", "--size", "6"), "a partition has a power of two of IPUs, and 6 is none"),
        (("p", "--size", "128"), "128 IPUs asked for, 48 of 64 are free"),
        (("there", "--size", "4"), "partition 'there' already exists"),
        (("p", "--size", "4", "--allocation", "c9"), "allocation 'c9' not found; there is default"),
        (
            ("p", "--size", "4", "--reconfigurable", "--sync-type", "pod-native-default"),
            "a reconfigurable partition has sync type c2-compatible, not pod-native-default",
        ),
        (("p", "--size", "4", "--num-gcds", "8"), "8 GCDs in a partition of 4 IPUs"),
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
    told = pod.told(*SIXTEEN, "--vipu-partition=p64")
    assert told[0]["IPUOF_VIPU_API_PARTITION_ID"] == "p64"
    assert list(pod.partitions()) == ["p64"]


def test_poprun_takes_the_only_one_and_won_t_choose_among_several(pod: Pod) -> None:
    pod.site(partitions={"one": partition(16)})
    assert pod.told(*SIXTEEN)[0]["IPUOF_VIPU_API_PARTITION_ID"] == "one"
    pod.site(partitions={"one": partition(16), "two": partition(16)})
    assert "several partitions exist (one, two)" in pod.poprun(*SIXTEEN, "true", code=1).stderr
    assert pod.told(*SIXTEEN, IPUOF_VIPU_API_PARTITION_ID="two")[0]["IPUOF_VIPU_API_PARTITION_ID"] == "two"


def test_poprun_makes_what_is_missing_and_removes_it_unless_told_otherwise(pod: Pod) -> None:
    pod.told(*SIXTEEN, "--vipu-partition=mine", "--vipu-allocation=default")
    assert pod.partitions() == {}
    pod.told(*SIXTEEN, "--vipu-partition=mine", "--remove-partition=0", "--sync-type=ST_POD_NATIVE_DEFAULT")
    made = pod.partitions()["mine"]
    assert (made["size"], made["sync_type"], made["reconfigurable"]) == (16, "pod-native-default", False)


def test_a_partition_that_is_too_small_is_updated_only_when_asked(pod: Pod) -> None:
    pod.site(partitions={"p8": partition(8)})
    ended = pod.poprun(*SIXTEEN, "--vipu-partition=p8", "true", code=1)
    assert "partition 'p8' has 8 IPUs and 16 replicas x 1 IPUs need 16: give --update-partition yes" in ended.stderr
    pod.told(*SIXTEEN, "--vipu-partition=p8", "--update-partition=yes")
    assert pod.partitions()["p8"]["size"] == 16


def test_a_partition_in_error_is_refused_and_a_reset_cures_it(pod: Pod) -> None:
    pod.site(partitions={"p16": partition(16, state="PS_ERROR")})
    ended = pod.poprun(*SIXTEEN, "--vipu-partition=p16", "--vipu-partition-attempts=2", "true", code=1)
    assert ended.stderr.count("is in state PS_ERROR\n") == 2
    assert "partition 'p16' is in state PS_ERROR and not PS_ACTIVE" in ended.stderr
    pod.told(*SIXTEEN, "--vipu-partition=p16", "--reset-partition=yes")


def test_a_server_that_gives_no_answer(pod: Pod) -> None:
    pod.site(delay_s=600)
    ended = pod.poprun(*SIXTEEN, "--vipu-server-timeout=1", "true", code=1)
    assert "the V-IPU server gave no answer within 1 s" in ended.stderr
