"""What a rank is told: where it stands, where it meets the others, which device is its own."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from trainjob.contract.environment import TRY_ON_CPUS, Ranking
from trainjob.launch import host, rank_environment
from trainjob.launch.rank_environment import LaunchError

SLURM = {"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8", "SLURM_STEP_TASKS_PER_NODE": "4(x2)"}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}


@pytest.mark.parametrize(("launcher", "environ"), [("slurm", SLURM), ("openmpi", OPENMPI)])
def test_a_launcher_says_where_a_rank_stands(launcher: str, environ: dict[str, str]) -> None:
    where = rank_environment.from_launcher(launcher, environ)
    assert where == Ranking(rank=5, local_rank=1, world_size=8, local_world_size=4)


@pytest.mark.parametrize(("launcher", "environ"), [("slurm", SLURM), ("openmpi", OPENMPI)])
def test_a_variable_that_a_launcher_left_out_is_named(launcher: str, environ: dict[str, str]) -> None:
    for missing in environ:
        with pytest.raises(LaunchError, match=f"launcher {launcher} did not set {missing}"):
            rank_environment.from_launcher(
                launcher, {name: value for name, value in environ.items() if name != missing}
            )


def test_ranks_get_the_other_names_of_torchrun_where_no_scheduler_has_set_its_own() -> None:
    names = rank_environment.torchrun("abcd-train", 3, Ranking(5, 1, 8, 4), {})
    assert (names["TORCHELASTIC_RUN_ID"], names["TORCHELASTIC_RESTART_COUNT"]) == ("abcd-train", "2")
    assert (names["GROUP_RANK"], names["GROUP_WORLD_SIZE"]) == ("1", "2")
    assert (names["ROLE_RANK"], names["ROLE_WORLD_SIZE"]) == ("5", "8")
    assert rank_environment.torchrun("abcd-train", 1, Ranking(0, 0, 1, 1), {"SLURM_JOB_ID": "7"}) == {}


def test_ranks_of_one_host_are_numbered_twice_alike() -> None:
    assert rank_environment.all_on_this_host(2) == [Ranking(0, 0, 2, 2), Ranking(1, 1, 2, 2)]
    assert rank_environment.variables(Ranking(3, 1, 4, 2)) == {
        "RANK": "3",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "2",
    }


def test_no_rank_at_all_is_refused() -> None:
    with pytest.raises(LaunchError, match="at least 1 rank is needed"):
        rank_environment.all_on_this_host(0)


def device(local_rank: int, of: int, **environ: str) -> str:
    return rank_environment.device("gpu", Ranking(local_rank, local_rank, of, of), environ)["TRAINJOB_RANK_DEVICE"]


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


def test_a_host_that_shows_no_gpu_names_the_ways_to_train_on_cpus() -> None:
    with pytest.raises(LaunchError) as refused:
        device(0, 1, CUDA_VISIBLE_DEVICES="")
    assert refused.value.cure == TRY_ON_CPUS


def test_a_rehearsal_trains_on_the_cpu_whatever_the_plan_says() -> None:
    assert device(2, 3, CUDA_VISIBLE_DEVICES="", TRAINJOB_DEVICE="cpu") == "cpu"


@pytest.mark.parametrize("accelerator", ["cpu", "ipu"])
def test_only_gpus_are_counted(accelerator: str) -> None:
    assert rank_environment.device(accelerator, Ranking(2, 2, 3, 3), {}) == {"TRAINJOB_RANK_DEVICE": accelerator}


def threads(launcher: str, of: int, mask: int, *, bound: bool = False, **environ: str) -> str:
    affinity = rank_environment.Affinity(mask, bound)
    return rank_environment.threading(launcher, Ranking(0, 0, of, of), affinity, environ)["OMP_NUM_THREADS"]


def test_ranks_that_one_launcher_starts_share_its_cpus() -> None:
    assert [threads("local", many, 16) for many in (1, 3, 32)] == ["16", "5", "1"]


@pytest.mark.parametrize("launcher", ["slurm", "openmpi"])
def test_the_cpus_to_which_a_rank_was_bound_are_all_its_own(launcher: str) -> None:
    assert threads(launcher, 4, 16, bound=True) == "16"
    assert threads(launcher, 4, 16, bound=True, SLURM_CPUS_PER_TASK="16") == "16"


def test_a_rank_that_is_not_bound_takes_what_slurm_gives_a_task() -> None:
    # A shared node under task/none: the mask is the whole node's.
    assert threads("slurm", 1, 64, SLURM_CPUS_PER_TASK="1") == "1"
    # A control group that holds all ranks of the node.
    assert threads("slurm", 4, 16, SLURM_CPUS_PER_TASK="4") == "4"
    assert threads("openmpi", 4, 64, SLURM_CPUS_PER_TASK="8") == "8"


def test_no_rank_has_more_threads_than_cpus_it_may_use() -> None:
    assert threads("slurm", 2, 2, SLURM_CPUS_PER_TASK="16") == "2"


def test_a_share_of_the_host_is_for_ranks_of_which_nothing_else_is_known() -> None:
    assert threads("openmpi", 4, 16) == "4"
    # An allocation in which somebody trains on this machine alone is not that rank's.
    assert threads("local", 4, 16, SLURM_CPUS_PER_TASK="2") == "4"


def test_a_process_is_bound_if_its_parent_may_use_more_cpus(tmp_path: Path) -> None:
    def process(pid: int, cpus: str) -> None:
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "status").write_text(f"Name:\tpython3\nCpus_allowed_list:\t{cpus}\nThreads:\t1\n")

    process(10, "0-3,8,10-11")
    assert rank_environment.is_narrower(4, 10, tmp_path)
    assert not rank_environment.is_narrower(7, 10, tmp_path)
    assert not rank_environment.is_narrower(4, 11, tmp_path)  # of another user, or in another namespace


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"a/b/cpu.max": "250000 100000"}, 2),
        ({"a/b/cpu.max": "max 100000", "a/cpu.max": "50000 100000"}, 1),  # less than one CPU's time
        ({"a/b/cpu.max": "max 100000"}, None),
        ({"cpu/a/b/cpu.cfs_quota_us": "400000", "cpu/a/b/cpu.cfs_period_us": "100000"}, 4),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),  # of version 1, inside a container
        ({"cpu/a/b/cpu.cfs_quota_us": "-1", "cpu/a/b/cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_a_limit_on_the_time_of_cpus_counts_as_fewer_cpus(
    tmp_path: Path, files: dict[str, str], quota: int | None
) -> None:
    for name, text in files.items():
        file = tmp_path / "cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    membership = tmp_path / "membership"
    membership.write_text("2:cpuacct:/\n1:cpu:/a/b\n" if any("cfs" in name for name in files) else "0::/a/b\n")
    assert host.cpu_quota(tmp_path / "cgroup", membership) == quota


def test_amd_gpus_are_counted_by_the_variables_of_rocm() -> None:
    assert device(1, 2, ROCR_VISIBLE_DEVICES="0,1") == "cuda:1"
    assert device(1, 2, ROCR_VISIBLE_DEVICES="2,3", HIP_VISIBLE_DEVICES="0,1") == "cuda:1"
    assert device(0, 1, ROCR_VISIBLE_DEVICES="3") == "cuda:0"
    # HIP counts among the devices that ROCR leaves; it reads CUDA's variable where its own is not set.
    assert device(0, 1, ROCR_VISIBLE_DEVICES="0,1,2,3", HIP_VISIBLE_DEVICES="2") == "cuda:0"
    with pytest.raises(LaunchError, match="local rank 1 of 2 needs a GPU of its own and 1 are visible"):
        device(1, 2, ROCR_VISIBLE_DEVICES="0", HIP_VISIBLE_DEVICES="0,1")


def test_the_users_own_interface_stays() -> None:
    placed = rank_environment.on_interface({"GLOO_SOCKET_IFNAME": "eno1"}, "lo")
    assert placed == {"GLOO_SOCKET_IFNAME": "eno1", "NCCL_SOCKET_IFNAME": "lo"}


def test_data_may_take_other_interfaces_than_the_rendezvous() -> None:
    assert rank_environment.on_interface({}, "eno1", "^docker,lo") == {
        "GLOO_SOCKET_IFNAME": "eno1",  # gloo knows no patterns
        "NCCL_SOCKET_IFNAME": "^docker,lo",
    }
    assert rank_environment.on_interface({}, "", "=ib0") == {"NCCL_SOCKET_IFNAME": "=ib0"}
    assert rank_environment.on_interface({}, "eno1", "ib0,ib1") == {
        "GLOO_SOCKET_IFNAME": "ib0,ib1",
        "NCCL_SOCKET_IFNAME": "ib0,ib1",
    }


def test_a_free_port_is_found_past_one_that_is_taken() -> None:
    first = rank_environment.free_port(7)
    with socket.create_server(("127.0.0.1", first)):
        second = rank_environment.free_port(7)
    assert rank_environment.FIRST_PORT <= first < second <= rank_environment.LAST_PORT


def test_a_port_that_was_asked_for_and_is_in_use_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(LaunchError, match=rf"port {port} on 127\.0\.0\.1 is in use.*a free port is chosen"):
            rank_environment.rendezvous_on_this_host(port)
    assert rank_environment.rendezvous_on_this_host(port) == {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
