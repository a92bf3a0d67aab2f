"""How the threads of ranks wait for each other: by what else runs on their CPUs when they start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

import pytest

from trainjob.contract import clock
from trainjob.contract.environment import Ranking
from trainjob.launch.rank_environment import WAITING, Affinity, Rank
from trainjob.launch.ranks import spinning

# What CPUs do in the 5 ticks of a look.
IDLE, BUSY, STARTING = (0, 5), (5, 0), (2, 3)


@pytest.fixture(autouse=True)
def cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr(spinning, "affinity", lambda: Affinity(4, is_bound=False))


def rank(threads: str, local_world_size: int = 1, cpus: frozenset[int] = frozenset(), ranks_per_node: int = 0) -> Rank:
    ranking = Ranking(0, 0, local_world_size, local_world_size)
    environment = {"OMP_NUM_THREADS": threads, **WAITING}
    return Rank(ranking, ["true"], environment, Path(), Path(), cpus=cpus, ranks_per_node=ranks_per_node)


def spins(folder: Path, looks: Iterator[list[tuple[int, int]]], *ranks: Rank, **environ: str) -> list[bool]:
    """Return whether each rank's threads spin, where the CPUs are busy and idle for so many ticks during the looks."""
    stat, seen = folder / "stat", [(1000, 100_000)] * 5

    def write() -> None:
        lines = [f"cpu{cpu} {busy} 0 0 {idle} 0 0 0 0 {busy} 0" for cpu, (busy, idle) in enumerate(seen)]
        stat.write_text("\n".join(["cpu  9 0 0 9 0 0 0 0 9 0", *lines, "intr 1 2 3", "procs_running 1", ""]))

    def pause(_: float) -> None:
        seen[:] = [(a + b, c + d) for (a, c), (b, d) in zip(seen, next(looks), strict=True)]
        write()

    write()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "sleep", pause)
        spinning.let_spin(ranks, environ, stat=stat)
    assert all(WAITING.items() <= one.environment.items() for one in ranks)
    return [one.environment.get("GOMP_SPINCOUNT") == "1000" for one in ranks]


def test_threads_spin_where_each_has_an_idle_cpu(tmp_path: Path) -> None:
    assert spins(tmp_path, repeat([IDLE] * 5), rank("4")) == [True]
    assert spins(tmp_path, repeat([IDLE] * 5), rank("2", 2), rank("2", 2)) == [True, True]
    assert spins(tmp_path, repeat([IDLE, STARTING, IDLE, IDLE, BUSY]), rank("4")) == [True]
    assert spins(tmp_path, repeat([BUSY, IDLE, IDLE, IDLE, IDLE]), rank("3")) == [True]


def test_threads_sleep_where_something_else_needs_a_cpu_of_theirs(tmp_path: Path) -> None:
    # The fifth CPU is not theirs.
    assert spins(tmp_path, repeat([BUSY, IDLE, IDLE, IDLE, IDLE]), rank("4")) == [False]
    assert spins(tmp_path, repeat([BUSY, IDLE, IDLE, IDLE, IDLE]), rank("2", 2), rank("2", 2)) == [False, False]


@pytest.mark.parametrize(("used_s", "spin"), [(0.05, True), (0.02, False)])
def test_what_the_launchers_take_themselves_while_they_load_is_free_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, used_s: float, spin: bool
) -> None:
    monkeypatch.setattr(os, "times", lambda: (used_s, 0.0))
    stat, one = tmp_path / "stat", rank("2", 2)
    stat.write_text("".join(f"cpu{cpu} {6 - idle} 0 0 {idle} 0 0 0 0 0 0\n" for cpu, idle in enumerate((0, 6, 6, 0))))
    nothing_yet = "".join(f"cpu{cpu} 0 0 0 0 0 0 0 0 0 0\n" for cpu in range(4))
    monkeypatch.setattr(clock, "sleep", None)  # it has loaded for long enough
    spinning.let_spin([one], {}, (nothing_yet, 0.0), stat)
    assert ("GOMP_SPINCOUNT" in one.environment) == spin


@pytest.mark.parametrize(("bound", "spin"), [(False, False), (True, True)])
def test_ranks_that_other_launchers_start_have_threads_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: bool, spin: bool
) -> None:
    monkeypatch.setattr(spinning, "affinity", lambda: Affinity(4, is_bound=bound))
    assert spins(tmp_path, repeat([BUSY, IDLE, IDLE, IDLE, IDLE]), rank("2", 2)) == [spin]


@pytest.mark.parametrize("ranks", [(rank("5"),), (rank("2", ranks_per_node=3),), (rank("2", cpus=frozenset({1})),)])
def test_more_threads_than_cpus_sleep_and_nobody_looks(tmp_path: Path, ranks: tuple[Rank, ...]) -> None:
    assert spins(tmp_path, iter([]), *ranks) == [False] * len(ranks)


@pytest.mark.parametrize("stated", [{"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "7"}])
def test_a_way_of_waiting_that_is_stated_stays(tmp_path: Path, stated: dict[str, str]) -> None:
    assert spins(tmp_path, iter([]), rank("2"), **stated) == [False]


def test_where_the_system_tells_nothing_of_its_cpus_threads_sleep(tmp_path: Path) -> None:
    one = rank("2")
    spinning.let_spin([one], {}, stat=tmp_path / "stat")
    assert "GOMP_SPINCOUNT" not in one.environment
