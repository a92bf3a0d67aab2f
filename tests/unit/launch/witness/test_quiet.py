"""Ranks that do nothing: told, and ended only if nothing moves in them. In virtual time."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from tests.support.clock import Clock
from trainjob.contract.paths import RunPaths
from trainjob.launch import processes
from trainjob.launch.processes import Process
from trainjob.launch.rank_environment import Watched
from trainjob.launch.reading.recording import ScriptProgress
from trainjob.launch.witness import watching
from trainjob.launch.witness.quiet import Outliving, Rules, Stall
from trainjob.launch.witness.stacks import Stacks
from trainjob.launch.witness.watching import Orders
from trainjob.records import outlived, progress, stacks
from trainjob.records.stacks import ProcessStack, RankStacks
from trainjob.records.usage import DeviceUse, UsageRecord

HEADER = "--- attempt 1 · rank 0 of 1 · host · 2026-11-23T00:00:00Z ---\n"
THREADS = """\
Thread 0x00007f (most recent call first):
  File "/venv/tqdm/_monitor.py", line 60 in run
Current thread 0x00007e (most recent call first):
  File "/project/train.py", line %d in %s
  File "/project/train.py", line 90 in main
"""


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The processes that were ended, which the kernel then no longer shows."""
    pids: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _: pids.append(pid))
    monkeypatch.setattr(
        *(processes, "look"), lambda pid: None if pid in pids or pid < 0 else Process(pid, 1, 1, "S", 0.0, 0)
    )
    return pids  # type: ignore[return-value] # a fixture that ends nothing


class Rank:
    """What a rank would show of itself."""

    def __init__(self, clock: Clock, rank: int = 0, name: str = "all_reduce", line: int = 10) -> None:
        self.clock, self.rank, self.name, self.line = clock, rank, name, line
        self.cores, self.io_per_s, self.pid = 0.0, 0.0, 100 + rank
        self._cpu_s, self._io_bytes, self._until = 0.0, 0.0, clock.now

    def work(self, cores: float = 0.0, io_per_s: float = 0.0) -> None:
        """Compute, read and write so much from now on."""
        passed_s = self.clock.now - self._until
        self._cpu_s, self._io_bytes = self._cpu_s + self.cores * passed_s, self._io_bytes + self.io_per_s * passed_s
        self.cores, self.io_per_s, self._until = cores, io_per_s, self.clock.now

    def stacks(self) -> RankStacks:
        self.work(self.cores, self.io_per_s)
        text = THREADS % (self.line, self.name)
        own = ProcessStack(self.pid, "python", "S", text, self._cpu_s, int(self._io_bytes))
        return RankStacks("word", 1, self.rank, "host", self.clock.now, [own])


def started(tmp_path: Path) -> RunPaths:
    paths = RunPaths(tmp_path)
    paths.logs.mkdir()
    for rank in range(4):
        paths.rank_log(rank).write_text(HEADER)
    return paths


# --- Alive, and nothing left to do.


def outliving(
    paths: RunPaths, ranks: list[Rank], writers: int, forgiven: list[int], grace_s: float = 60.0
) -> Outliving:
    watched = [Watched(1, one.rank, one.pid, {}) for one in ranks]
    take = lambda _: {one.rank: one.stacks() for one in ranks}  # noqa: E731 - one line says it
    return Outliving(paths, watched, writers, Rules(grace_s), take, forgiven.append)


def others_end(paths: RunPaths, ranks: range, code: int = 0) -> None:
    (paths.folder / ".ended").mkdir()
    for rank in ranks:
        (paths.folder / ".ended" / f"1.{rank:04d}").write_text(f"{code}\n")


def pass_time(clock: Clock, seconds: float, look: Callable[[], None]) -> None:
    for _ in range(int(seconds)):
        clock.now += 1
        look()


def test_the_last_rank_is_ended_after_the_grace(tmp_path: Path, clock: Clock, killed: list[int]) -> None:
    paths, forgiven = started(tmp_path), list[int]()
    one = outliving(paths, [Rank(clock)], 4, forgiven)
    pass_time(clock, 300, one.look)
    assert killed == []
    others_end(paths, range(1, 4))
    pass_time(clock, 60, one.look)
    assert killed == []
    pass_time(clock, 30, one.look)
    assert (killed, forgiven) == ([100], [0])
    note = outlived.read(paths, 1)
    assert note is not None
    assert (note.rank, note.why) == (0, "all other ranks had ended")
    assert outlived.read(paths, 2) is None


def test_ranks_of_one_launcher_that_ended_need_no_mark(tmp_path: Path, clock: Clock, killed: list[int]) -> None:
    ended = Rank(clock, 1)
    ended.pid = -1
    one = outliving(started(tmp_path), [Rank(clock), ended], 2, [])
    pass_time(clock, 90, one.look)
    assert killed == [100]


@pytest.mark.parametrize("what", ["stack", "io", "output", "a process", "failed others", "one other lives"])
def test_a_rank_that_does_something_is_not_ended(what: str, tmp_path: Path, clock: Clock, killed: list[int]) -> None:
    """It evaluates, uploads, prints or starts processes; or the others have not all ended with 0."""
    paths, rank = started(tmp_path), Rank(clock)
    one = outliving(paths, [rank], 4, [])
    others_end(paths, range(1, 3 if what == "one other lives" else 4), code=int(what == "failed others"))
    rank.work(io_per_s=1e6 * (what == "io"))
    for number in range(1000):
        rank.line += what == "stack"
        rank.pid += (what == "a process") * (number % 40 == 0)
        if what == "output" and number % 50 == 0:
            with paths.rank_log(0).open("a") as log:
                log.write(".")
        pass_time(clock, 1, one.look)
    assert killed == []


def test_a_long_call_of_a_library_gets_as_long_as_a_stall(tmp_path: Path, clock: Clock, killed: list[int]) -> None:
    paths, rank = started(tmp_path), Rank(clock)
    rank.work(cores=1.0)
    others_end(paths, range(1, 4))
    one = outliving(paths, [rank], 4, [])
    pass_time(clock, 590, one.look)
    assert killed == []
    pass_time(clock, 60, one.look)
    assert killed == [100]


@pytest.mark.parametrize(("durable", "ends"), [(100, True), (90, False), (None, False)])
def test_all_ranks_live_on_after_the_last_checkpoint(
    durable: int | None, ends: bool, tmp_path: Path, clock: Clock, killed: list[int]
) -> None:
    paths = started(tmp_path)
    progress.write(paths, progress.ProgressRecord(1, update=100, total_updates=100, durable_update=durable))
    one = outliving(paths, [Rank(clock, 2)], 4, [])
    pass_time(clock, 120, one.look)
    assert killed == ([102] if ends else [])


# --- Alive, and no progress.


class Training:
    """A command that prints a line an update, and what is done about its silence."""

    def __init__(
        self, paths: RunPaths, clock: Clock, ranks: list[Rank], ends: bool = True, size: int | None = None
    ) -> None:
        self.paths, self.clock, self.ranks, self.step = paths, clock, ranks, 0
        self.script = ScriptProgress(paths, 1, [paths.rank_log(0)])
        self.ended: list[str] = []
        rules = Rules(ends_stalled=ends)
        self.stall = Stall(
            self.script, rules, size or len(ranks), lambda: [rank.stacks() for rank in ranks], self.ended.append
        )

    def train(self, updates: int, every_s: int = 1) -> None:
        for _ in range(updates):
            self.wait(every_s)
            self.step += 1
            with self.paths.rank_log(0).open("a") as log:
                log.write(f"step {self.step}/100000 loss 2.5\n")
            self.wait(0)

    def wait(self, seconds: int, does: Callable[[], None] = lambda: None, each_s: int = 1) -> None:
        for _ in range(0, max(1, seconds), each_s):
            self.clock.now += each_s if seconds else 0
            does()
            self.script.look()
            self.stall.look()

    @property
    def trouble(self) -> str:
        return progress.read(self.paths).trouble or ""


def test_silence_is_told_with_the_odd_rank_first(
    tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = [Rank(clock, rank) for rank in range(4)]
    ranks[2] = Rank(clock, 2, "load", 31)
    run = Training(started(tmp_path), clock, ranks, ends=False)
    run.train(20)
    run.wait(32)
    assert not run.trouble
    run.wait(3)
    assert run.trouble.startswith(
        "no progress for 33 s, which is usually made every 1 s. rank 2 is in load (train.py:31)"
    )
    assert "; 3 ranks (0, 1, 3) are in all_reduce (train.py:10) ← main (train.py:90)" in run.trouble
    run.wait(2000)
    assert run.ended == []
    assert capsys.readouterr().err.count("no progress") == 1
    run.train(1)
    assert not run.trouble
    run.script.look(is_last=True)


def test_a_launcher_that_is_gone_is_named_and_keeps_no_hang_alive(tmp_path: Path, clock: Clock) -> None:
    """Its node's daemon was killed with its launchers and ranks, and no other rank fails of it."""
    run = Training(started(tmp_path), clock, [Rank(clock, 0), Rank(clock, 1)], size=4)
    run.train(20)
    run.wait(35)
    assert "no launcher answers for rank 2, 3: its node may be gone" in run.trouble
    assert "2 ranks (0, 1) are in all_reduce" in run.trouble
    run.wait(31)
    assert len(run.ended) == 1
    run.script.look(is_last=True)


def test_a_hang_is_ended_where_the_job_says_so(tmp_path: Path, clock: Clock) -> None:
    run = Training(started(tmp_path), clock, [Rank(clock, rank) for rank in range(4)])
    run.train(20)
    run.wait(33 + 31)
    assert len(run.ended) == 1
    run.script.look(is_last=True)
    assert "(on_stall: end)" in run.ended[0]


def test_a_hang_that_spins_is_ended_after_the_stall_timeout(tmp_path: Path, clock: Clock) -> None:
    """NCCL waits for the GPU with a full core: so does a long call of a library."""
    rank = Rank(clock)
    rank.work(cores=1.0)
    run = Training(started(tmp_path), clock, [rank])
    run.train(20)
    run.wait(580)
    assert run.ended == []
    run.wait(60)
    assert run.ended
    run.script.look(is_last=True)


def test_no_healthy_run_is_ended(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """100 seeded runs that evaluate for long, compile, load, write checkpoints or download, in one rank or in all."""
    monkeypatch.setattr(ScriptProgress, "_write", lambda *_: None)  # what they record is not looked at here
    for seed in range(100):
        draw, folder = random.Random(seed), tmp_path / str(seed)
        folder.mkdir()
        ranks = [Rank(clock, rank) for rank in range(draw.choice((1, 2, 4)))]
        run = Training(started(folder), clock, ranks)
        run.train(draw.randrange(4, 12), draw.choice((1, 1, 5)))
        for _ in range(2):
            kind = draw.choice(("evaluates", "compiles", "downloads", "saves", "computes"))
            busy = draw.sample(ranks, draw.randrange(1, len(ranks) + 1))

            def does(kind: str = kind, busy: list[Rank] = busy, draw: random.Random = draw) -> None:
                for rank in busy:
                    rank.line += kind == "evaluates" and draw.random() < 0.9
                    rank.pid += 1000 * (kind == "compiles" and draw.random() < 0.9)

            for rank in busy:
                is_io, computes = kind in ("downloads", "saves"), kind in ("computes", "compiles")
                rank.work(1.0 * computes, draw.choice((50e3, 5e6)) * is_io)
            run.wait(draw.randrange(20, 500), does, each_s=10)
            for rank in busy:
                rank.work()
                rank.line, rank.pid = 10, 100 + rank.rank
            run.train(4)
        assert run.ended == [], (seed, kind)
        run.script.look(is_last=True)


# --- The observer's own wait.


def test_a_stalled_node_waits_for_the_answers_of_all_ranks_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two launchers of four ranks each write down the stacks of all eight."""
    paths = started(tmp_path)
    environ = {"WORLD_SIZE": "8"}
    observer = watching._Observer(paths, [Watched(1, 0, 1, environ, 4)], cast(Stacks, None), Orders())
    waited: list[float] = []
    empty = RankStacks("stall-0-1", 1, 0, "host", 1.0, [])
    for rank in range(7):
        stacks.write(paths, replace(empty, rank=rank))

    def answer(seconds: float) -> None:
        waited.append(seconds)
        stacks.write(paths, replace(empty, rank=7))

    monkeypatch.setattr("trainjob.contract.clock.sleep", answer)
    observer._wait_for_others("stall-0-1")
    assert len(waited) == 1
    observer._wait_for_others("stall-0-1")
    assert len(waited) == 1


def test_unused_gpus_are_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock()
    observer = watching._Observer(
        started(tmp_path), [Watched(1, 0, 1, {"WORLD_SIZE": "1", "RANK": "0"})], cast(Stacks, None), Orders()
    )
    monkeypatch.setattr(watching, "clock", clock)
    output = []
    for second, use in [(0, 0.9), (60, 0.0), (360, 0.005), (661, 0.0), (900, 0.0), (960, 0.5), (990, 0.0), (1600, 0.0)]:
        clock.now = 1.75e9 + second
        devices = [DeviceUse("GPU 0", use), DeviceUse("GPU 1", None)]
        observer._report_idle_devices([UsageRecord(1, 0, "host", 1, clock.now, 1, 0, devices=devices)])
        output.append(capsys.readouterr().err)
    assert [bool(line) for line in output] == [False, False, False, True, False, False, False, True]
    assert output[3] == "trainjob: no GPU of rank 0 has been used for 601 s (idle_timeout_s)\n"
