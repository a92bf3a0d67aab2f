"""What a rank is told: where it stands, where it meets the others, which device is its own."""

from __future__ import annotations

import socket

import pytest

from trainjob.contract.environment import Ranking
from trainjob.train import ranks
from trainjob.train.ranks import LaunchError

SLURM = {"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8", "SLURM_STEP_TASKS_PER_NODE": "4(x2)"}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}


@pytest.mark.parametrize(("launcher", "environ"), [("slurm", SLURM), ("openmpi", OPENMPI)])
def test_a_launcher_says_where_a_rank_stands(launcher: str, environ: dict[str, str]) -> None:
    where = ranks.from_launcher(launcher, environ)
    assert where == Ranking(rank=5, local_rank=1, world_size=8, local_world_size=4)


@pytest.mark.parametrize(("launcher", "environ"), [("slurm", SLURM), ("openmpi", OPENMPI)])
def test_a_variable_that_a_launcher_left_out_is_named(launcher: str, environ: dict[str, str]) -> None:
    for missing in environ:
        with pytest.raises(LaunchError, match=f"launcher {launcher} did not set {missing}"):
            ranks.from_launcher(launcher, {name: value for name, value in environ.items() if name != missing})


def test_ranks_of_one_host_are_numbered_twice_alike() -> None:
    assert ranks.all_on_this_host(2) == [Ranking(0, 0, 2, 2), Ranking(1, 1, 2, 2)]
    assert ranks.variables(Ranking(3, 1, 4, 2)) == {
        "RANK": "3",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "2",
    }


def test_no_rank_at_all_is_refused() -> None:
    with pytest.raises(LaunchError, match="at least 1 rank is needed"):
        ranks.all_on_this_host(0)


def device(local_rank: int, of: int, **environ: str) -> str:
    return ranks.device("gpu", Ranking(local_rank, local_rank, of, of), environ)["TRAINJOB_RANK_DEVICE"]


@pytest.mark.parametrize("visible", ["0", "3", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"])
def test_the_one_gpu_that_is_visible_is_device_0(visible: str) -> None:
    assert device(0, 1, CUDA_VISIBLE_DEVICES=visible) == "cuda:0"


def test_a_rank_that_slurm_has_bound_to_one_gpu_of_several_sees_it_as_device_0() -> None:
    assert device(3, 4, CUDA_VISIBLE_DEVICES="0", SLURM_STEP_GPUS="0,1,2,3") == "cuda:0"


def test_of_several_gpus_each_rank_takes_its_own() -> None:
    assert [device(rank, 2, CUDA_VISIBLE_DEVICES="4,5") for rank in (0, 1)] == ["cuda:0", "cuda:1"]


@pytest.mark.parametrize(
    ("visible", "count"), [("0,1", 2), ("0", 1), ("", 0), ("-1", 0), ("NoDevFiles", 0)], ids=lambda one: repr(one)
)
def test_more_ranks_than_gpus_are_refused_with_both_numbers(visible: str, count: int) -> None:
    with pytest.raises(LaunchError, match=f"local rank 2 of 3 needs a GPU of its own and {count} are visible"):
        device(2, 3, CUDA_VISIBLE_DEVICES=visible)


def test_a_rehearsal_trains_on_the_cpu_whatever_the_plan_says() -> None:
    assert device(2, 3, CUDA_VISIBLE_DEVICES="", TRAINJOB_DEVICE="cpu") == "cpu"


@pytest.mark.parametrize("accelerator", ["cpu", "ipu"])
def test_only_gpus_are_counted(accelerator: str) -> None:
    assert ranks.device(accelerator, Ranking(2, 2, 3, 3), {}) == {"TRAINJOB_RANK_DEVICE": accelerator}


def test_ranks_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(16)))
    assert [ranks.threads(Ranking(0, 0, many, many)) for many in (1, 3, 32)] == ["16", "5", "1"]


def test_the_users_own_interface_stays() -> None:
    placed = ranks.on_interface({"GLOO_SOCKET_IFNAME": "eno1"}, "lo")
    assert placed == {"GLOO_SOCKET_IFNAME": "eno1", "NCCL_SOCKET_IFNAME": "lo"}


def test_a_free_port_is_found_past_one_that_is_taken() -> None:
    first = ranks.free_port(7)
    with socket.create_server(("127.0.0.1", first)):
        second = ranks.free_port(7)
    assert ranks.FIRST_PORT <= first < second <= ranks.LAST_PORT


def test_a_port_that_was_asked_for_and_is_in_use_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(LaunchError, match=rf"port {port} on 127\.0\.0\.1 is in use.*a free one is chosen"):
            ranks.rendezvous_on_this_host(port)
    assert ranks.rendezvous_on_this_host(port) == {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
