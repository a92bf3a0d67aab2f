"""What can't be asked of poprun is refused, with rule, values and cure."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.plan_cases import local, planned, pod, refused
from trainjob.planning.poprun import numa, release


def with_sdk(version: str, **poprun: Any) -> Any:
    return pod(16, sdk={"version": version}, poprun=poprun)


@pytest.mark.parametrize("version", ["1.4", "3.5.0", "9.9", "2.7.1"])
def test_an_sdk_that_there_is_not(version: str) -> None:
    found = refused(with_sdk(version))
    assert found.values == f"sdk.version is {version}"
    assert found.cure.startswith("Give the release that is on the hosts: 2.0, 2.1,")


@pytest.mark.parametrize("version", ["2.0", "2.6.0", "3.3.0+1403", "3.4.0"])
def test_the_sdks_that_there_are(version: str) -> None:
    assert planned(with_sdk(version)).engine == "ipu"


def test_an_unknown_number_behind_the_release_is_read_over() -> None:
    assert release("3.3.0+1403-208993bbb7") == (3, 3)


def test_ranges_before_sdk_2_5() -> None:
    found = refused(with_sdk("2.4", host_list="range"))
    assert found.rule == "poprun reads ranges of hosts from SDK 2.5 on"
    assert found.values == "poprun.host_list is range and sdk.version is 2.4"
    assert found.cure == "Write host_list: comma, or leave it out."
    assert planned(with_sdk("2.5", host_list="range"))


@pytest.mark.parametrize(
    ("version", "option"), [("3.0", "numa-aware"), ("3.4.0", "numa-aware"), ("2.6", "process-placement")]
)
def test_an_option_of_another_release(version: str, option: str) -> None:
    found = refused(with_sdk(version, options={option: "x"}))
    assert found.values == f"poprun option {option} and sdk.version {version}"
    assert "numa: spread" in found.cure
    assert "numa: spread" in refused(with_sdk(version), poprun={option: "x"}).cure


def test_placement_is_said_as_the_release_says_it() -> None:
    assert [numa("spread", "2.6.0"), numa("disabled", "2.6.0")] == [("numa-aware", True), ("numa-aware", False)]
    assert numa("spread", "3.0.0") == ("process-placement", "spreadnuma")
    assert numa("disabled", "3.4.0") == ("process-placement", "disabled")


@pytest.mark.parametrize("option", ["num-replicas", "host", "mpi-local-args", "offline-mode"])
def test_an_option_that_the_plan_works_out(option: str) -> None:
    found = refused(with_sdk("3.3.0"), poprun={option: 8})
    assert (found.values, found.cure[-9:]) == (f"poprun option {option}", " instead.")


@pytest.mark.parametrize("job", [{"compile_first": True}, {"compile_only": True}, {"poprun": {"sync-type": "x"}}])
def test_what_is_poprun_s_alone(job: dict[str, Any]) -> None:
    found = refused(local(), **job)
    assert found.rule == "only IPU jobs compile ahead and take poprun's options"
    assert found.values.endswith("on a cluster of kind local, which has no IPUs")


def test_a_command_compiles_by_itself() -> None:
    found = refused(with_sdk("3.3.0"), compile_first=True, command=["python", "main.py"])
    assert found.values == "--compile-first and the command python"
    assert planned(with_sdk("3.3.0"), compile_only=True, command=["python", "main.py"])
