"""The share of a node that a packed element's launcher keeps: its devices, and the CPUs of each of its ranks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainjob.launch import share

CPUS = 8


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The CPUs that this process was limited to. Of eight, 0 and 4 are threads of one core, and so on."""
    limited: list[list[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(CPUS)))
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cpus: limited.append(sorted(cpus)))
    # /sys/devices/system/cpu/cpu5/topology/core_id
    cores = {(f"cpu{cpu}", "core_id"): f"{cpu % 4}\n" for cpu in range(CPUS)}
    monkeypatch.setattr(Path, "read_text", lambda path: cores.get((path.parts[-3], path.name), "0\n"))
    return limited


def test_shares_have_devices_and_whole_cores_of_their_own(kept: list[list[int]]) -> None:
    devices = []
    for number in range(4):
        environ = {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "ZE_AFFINITY_MASK": "4,5,6,7", "ROCR_VISIBLE_DEVICES": ""}
        environ["SLURM_STEP_GPUS"] = "6,5,4,3"
        share.take(f"{number}/4", environ)
        devices.append(list(environ.values()))
    assert devices == [["0", "4", "", "6"], ["1", "5", "", "5"], ["2", "6", "", "4"], ["3", "7", "", "3"]]
    assert kept == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_the_ranks_of_an_element_have_its_devices_together_and_cpus_of_their_own(kept: list[list[int]]) -> None:
    for rank in range(2):
        environ = {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "SLURM_NTASKS_PER_NODE": "2", "SLURM_LOCALID": str(rank)}
        share.take("1/2", environ)
        assert environ["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert kept == [[2, 6], [3, 7]]


def test_a_server_and_the_ranks_beside_it_have_cpus_in_proportion_to_their_gpus(kept: list[list[int]]) -> None:
    for rank in range(3):
        of_mpirun = {"OMPI_COMM_WORLD_LOCAL_SIZE": "3", "OMPI_COMM_WORLD_LOCAL_RANK": str(rank)}
        share.take("0+3/4", of_mpirun)
    share.take("0+3/4", {"OMPI_COMM_WORLD_LOCAL_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"})
    share.take("3+1/4", {})
    assert kept == [[0, 4], [1, 5], [2, 6], [0, 1, 2, 4, 5, 6], [3, 7]]


def test_more_shares_than_there_is_of_something_have_it_all(kept: list[list[int]]) -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "0"}
    share.take("9/16", environ)
    assert (environ["CUDA_VISIBLE_DEVICES"], kept) == ("0", [list(range(CPUS))])
