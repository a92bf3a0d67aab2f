"""Ranks and the CPUs next to their GPUs, on sysfs trees modelled on real machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainjob.launch.ranks import binding


def machine(folder: Path, gpus: list[int], sockets: int, cores: int, threads: int = 2) -> Path:
    """Write the sysfs of a machine whose GPUs are on these sockets; sockets have `cores` each, threads come last."""
    total = sockets * cores
    for core in range(total):
        siblings = [core + total * thread for thread in range(threads)]
        for cpu in siblings:
            topology = folder / "devices/system/cpu" / f"cpu{cpu}" / "topology"
            topology.mkdir(parents=True)
            (topology / "thread_siblings_list").write_text(",".join(map(str, siblings)) + "\n")
    for number, socket in enumerate(gpus):
        device = folder / f"bus/pci/devices/0000:{16 + number:02x}:00.0"
        device.mkdir(parents=True)
        lists = (f"{total * t + socket * cores}-{total * t + (socket + 1) * cores - 1}" for t in range(threads))
        facts = {"vendor": "0x10de", "class": "0x030200", "numa_node": str(socket), "local_cpulist": ",".join(lists)}
        for name, text in facts.items():
            (device / name).write_text(f"{text}\n")
    other = folder / "bus/pci/devices/0000:01:00.0"
    other.mkdir(parents=True)
    (other / "vendor").write_text("0x1a03\n")  # the board's own display
    (other / "class").write_text("0x030000\n")
    return folder


def shares(sysfs: Path, ranks: int, cpus: int, *, is_bound: bool = False) -> list[set[int]]:
    found = [binding.nearby(rank, list(range(ranks)), frozenset(range(cpus)), is_bound, sysfs) for rank in range(ranks)]
    return [set(one.cpus) if one else set() for one in found]


def test_two_sockets_with_four_gpus_each(tmp_path: Path) -> None:
    sysfs = machine(tmp_path, [0, 0, 0, 0, 1, 1, 1, 1], sockets=2, cores=32)
    found = shares(sysfs, 8, 128)
    # Eight cores each, with both of their threads.
    assert found[0] == {*range(8), *range(64, 72)}
    assert found[4] == {*range(32, 40), *range(96, 104)}
    assert set().union(*found) == set(range(128))
    assert sum(map(len, found)) == 128


def test_one_socket(tmp_path: Path) -> None:
    assert shares(machine(tmp_path, [0, 0], sockets=1, cores=8, threads=1), 2, 8) == [{*range(4)}, {*range(4, 8)}]


def test_all_gpus_on_one_of_two_sockets(tmp_path: Path) -> None:
    found = shares(machine(tmp_path, [1, 1], sockets=2, cores=4, threads=1), 2, 8)
    assert found == [{4, 5}, {6, 7}]


def test_a_rank_stays_within_the_cpus_it_was_given(tmp_path: Path) -> None:
    sysfs = machine(tmp_path, [0, 1], sockets=2, cores=4, threads=1)
    assert shares(sysfs, 2, 6) == [{0, 1, 2, 3}, {4, 5}]
    assert shares(sysfs, 2, 4) == [{0, 1, 2, 3}, set()]  # none near the second GPU: left as it is
    shared = machine(tmp_path / "shared", [0, 0], sockets=1, cores=4, threads=1)
    # srun has bound the rank already: these CPUs are its own.
    assert shares(shared, 2, 4, is_bound=True) == [{0, 1, 2, 3}] * 2


def test_a_machine_that_does_not_say_is_no_error(tmp_path: Path) -> None:
    assert shares(tmp_path / "nothing", 2, 8) == [set(), set()]
    sysfs = machine(tmp_path, [0, 0], sockets=1, cores=4)
    for device in (sysfs / "bus/pci/devices").glob("*"):
        (device / "numa_node").write_text("-1\n")
    assert shares(sysfs, 2, 8) == [set(), set()]


@pytest.mark.parametrize(
    ("environ", "gpus"),
    [
        ({}, [0, 1]),
        ({"CUDA_VISIBLE_DEVICES": "2,3"}, [2, 3]),
        ({"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_STEP_GPUS": "2,3"}, [2, 3]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8932f937,GPU-d72c4106"}, None),
        ({"CUDA_VISIBLE_DEVICES": "0"}, None),
    ],
)
def test_gpus_are_known_by_the_drivers_numbers(environ: dict[str, str], gpus: list[int] | None) -> None:
    assert binding.physical_gpus(environ, 2) == gpus
