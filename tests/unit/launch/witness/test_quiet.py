"""Ranks that do nothing: told, and ended only if nothing moves in them. In virtual time."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.clock import Clock
from trainjob.contract.liveness import Silence, StallLimits
from trainjob.contract.paths import RunPaths
from trainjob.launch import processes
from trainjob.launch.processes import Process
from trainjob.launch.rank_environment import Watched
from trainjob.launch.reading.recording import ScriptProgress
from trainjob.launch.witness.quiet import Outliving, SampledRanks, Stall
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
        self.cores, self.io_per_s, self.pid, self.state = 0.0, 0.0, 100 + rank, "S"
        self._cpu_s, self._io_bytes, self._until = 0.0, 0.0, clock.now

    def work(self, cores: float = 0.0, io_per_s: float = 0.0) -> None:
        """Compute, read and write so much from now on."""
        passed_s = self.clock.now - self._until
        self._cpu_s, self._io_bytes = self._cpu_s + self.cores * passed_s, self._io_bytes + self.io_per_s * passed_s
        self.cores, self.io_per_s, self._until = cores, io_per_s, self.clock.now

    def stacks(self) -> RankStacks:
        self.work(self.cores, self.io_per_s)
        text = THREADS % (self.line, self.name)
        own = ProcessStack(self.pid, "python", self.state, text, self._cpu_s, int(self._io_bytes))
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
    return Outliving(paths, watched, writers, StallLimits(exit_grace_s=grace_s), take, forgiven.append)


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


def test_a_look_that_fails_once_begins_anew(tmp_path: Path, clock: Clock, killed: list[int]) -> None:
    paths = started(tmp_path)
    others_end(paths, range(1, 4))
    one = outliving(paths, [Rank(clock)], 4, [])
    pass_time(clock, 30, one.look)
    hidden = (paths.folder / ".ended").rename(paths.folder / "hidden")
    pass_time(clock, 20, one.look)
    hidden.rename(paths.folder / ".ended")
    pass_time(clock, 55, one.look)
    assert killed == []
    pass_time(clock, 35, one.look)
    assert killed == [100]


def test_a_long_call_of_a_library_gets_as_long_as_a_stall(tmp_path: Path, clock: Clock, killed: list[int]) -> None:
    paths, rank = started(tmp_path), Rank(clock)
    rank.work(cores=1.0)
    others_end(paths, range(1, 4))
    one = outliving(paths, [rank], 4, [])
    pass_time(clock, 590, one.look)
    assert killed == []
    pass_time(clock, 60, one.look)
    assert killed == [100]


@pytest.mark.parametrize(
    ("durable", "of_epoch", "ends"), [(100, False, True), (90, False, False), (None, False, False), (100, True, False)]
)
def test_all_ranks_live_on_after_the_last_checkpoint(
    durable: int | None, of_epoch: bool, ends: bool, tmp_path: Path, clock: Clock, killed: list[int]
) -> None:
    paths = started(tmp_path)
    record = progress.ProgressRecord(1, update=100, total_updates=100, durable_update=durable, may_be_of_epoch=of_epoch)
    progress.write(paths, record)
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
        self.devices_work = False
        rules = StallLimits(ends_stalled=ends)
        self.stall = Stall(
            self.script,
            rules,
            size or len(ranks),
            lambda: [rank.stacks() for rank in ranks],
            self.ended.append,
            lambda: self.devices_work,
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


def test_silence_is_reported_with_the_odd_rank_first(
    tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = [Rank(clock, rank) for rank in range(4)]
    ranks[2] = Rank(clock, 2, "load", 31)
    run = Training(started(tmp_path), clock, ranks, ends=False)
    run.train(20)
    run.wait(150)
    assert not run.trouble
    run.wait(4)
    assert run.trouble.startswith(
        "no progress for 153 s (usually every 1 s), no CPU time for 30 s, no change of processes, stacks and files for "
        "30 s. rank 2 is in load (train.py:31)"
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
    run.wait(154)
    assert "no launcher answers for rank 2, 3: its node may be gone" in run.trouble
    assert "2 ranks (0, 1) are in all_reduce" in run.trouble
    assert len(run.ended) == 1
    run.script.look(is_last=True)


def test_a_hang_is_ended_where_the_job_says_so(tmp_path: Path, clock: Clock) -> None:
    run = Training(started(tmp_path), clock, [Rank(clock, rank) for rank in range(4)])
    run.train(20)
    run.wait(152)
    assert run.ended == []
    run.wait(2)
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


def test_a_pause_is_no_stall_however_long_it_is_against_the_updates(tmp_path: Path, clock: Clock) -> None:
    """Of updates within a second: two minutes in which nothing moves, then five to ten of all that takes so long."""
    ranks = [Rank(clock, rank) for rank in range(2)]
    run = Training(started(tmp_path), clock, ranks)

    def evaluate() -> None:
        ranks[1].line += 1

    def pause(seconds: int, does: Callable[[], None] = lambda: None) -> None:
        run.train(20)
        run.wait(seconds, does)
        assert not run.trouble

    pause(120)
    pause(590, evaluate)
    for rank in ranks:
        rank.state = "D"  # the disk of a checkpoint
    pause(590)
    for rank in ranks:
        rank.state = "S"
    run.devices_work = True
    pause(590)
    run.train(20)
    # What took so long before may take half as long again.
    run.wait(880, evaluate)
    assert not run.trouble
    run.wait(10, evaluate)
    assert run.trouble.startswith("no progress for 887 s (usually every 1 s); still seen: CPU time, work of a device, ")
    run.script.look(is_last=True)
    assert run.ended == []


def test_no_healthy_run_is_ended(tmp_path: Path, clock: Clock) -> None:
    """100 seeded runs that evaluate for long, compile, load, write checkpoints or download, in one rank or in all."""
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
            assert not run.trouble, (seed, kind)
        assert run.ended == [], (seed, kind)
        run.script.look(is_last=True)


# --- Samples of what ranks use.


def sample(cpu_cores: float | None, *use: float, rank: int = 0) -> UsageRecord:
    devices = [DeviceUse("GPU 0", one) for one in use]
    return UsageRecord(1, rank, "n1", 7, 0.0, 8, 1000, cpu_cores, devices=devices)


def test_output_cpu_time_and_work_of_the_device_are_signs_of_life(tmp_path: Path, clock: Clock) -> None:
    paths, told = started(tmp_path), list[str]()

    def tell(rank: int, silence: Silence) -> None:
        told.append(f"{rank}: {silence.text}")
        print_more()  # the report is no sign of life

    def print_more() -> None:
        with paths.rank_log(0).open("a") as log:
            log.write("more\n")

    ranks = SampledRanks(paths, StallLimits(stall_timeout_s=20.0), tell)

    def told_after(seconds: float, *records: UsageRecord) -> list[str]:
        told.clear()
        clock.now += seconds
        ranks.look(records)
        return told

    assert not told_after(1, sample(None))
    assert not told_after(10, sample(0.001))
    assert not told_after(9, sample(0.001, 0.0))
    assert not told_after(9, sample(0.02, 0.0))
    assert not told_after(19, sample(0.0, 0.4), sample(0.3, rank=1))
    assert not told_after(19, sample(0.0, 0.0), sample(0.3, rank=1))
    print_more()
    assert not told_after(9, sample(0.0, 0.0), sample(0.3, rank=1))
    assert not told_after(19, sample(0.0, 0.0), sample(0.3, rank=1))
    said = "0: no output for 20 s, no CPU time for 67 s, no work of a device for 48 s"
    assert told_after(1, sample(0.0, 0.0), sample(0.3, rank=1)) == [said]
    assert not told_after(30, sample(0.0, 0.0), sample(0.3, rank=1))
    assert not told_after(1, sample(1.0), sample(0.0, rank=1))
    assert told_after(25, sample(0.0), sample(0.0, rank=1)) == [
        "0: no output for 76 s, no CPU time for 25 s",
        "1: no output for 104 s, no CPU time for 26 s",
    ]


def test_unused_gpus_are_reported_once(tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    ranks, said = SampledRanks(started(tmp_path), StallLimits()), []
    for second, use in [(0, 0.9), (60, 0.0), (360, 0.005), (661, 0.0), (900, 0.0), (960, 0.5), (990, 0.0), (1600, 0.0)]:
        clock.now = 1.75e9 + second
        devices = [DeviceUse("GPU 0", use), DeviceUse("GPU 1", None)]
        ranks.look([UsageRecord(1, 0, "host", 1, clock.now, 1, 0, devices=devices)])
        said.append(capsys.readouterr().err)
    assert [bool(line) for line in said] == [False, False, False, True, False, False, False, True]
    assert said[3] == "trainjob: no GPU of rank 0 has been used for 661 s (idle_timeout_s)\n"


# --- Stacks of all ranks.


def test_who_asks_for_stacks_waits_for_the_answers_of_all_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two launchers of four ranks each write down the stacks of all eight; a second one that asks finds the request."""
    paths, waited = started(tmp_path), list[float]()
    word = stacks.request(paths, "stall-1-")
    assert stacks.request(paths, "stall-1-") == word
    assert stacks.request(paths, "stall-2-") != word
    empty = RankStacks(word, 1, 0, "host", 1.0, [])
    for rank in range(7):
        stacks.write(paths, replace(empty, rank=rank))

    def answer(seconds: float) -> None:
        waited.append(seconds)
        stacks.write(paths, replace(empty, rank=7))

    monkeypatch.setattr("trainjob.contract.clock.sleep", answer)
    stacks.wait(paths, 8, word)
    assert len(waited) == 1
    stacks.wait(paths, 8, "stall-1-")
    assert len(waited) == 1
    stacks.wait(paths, 8, word, lambda: len(waited) == 3)
    assert len(waited) == 3
