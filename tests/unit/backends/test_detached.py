"""The back end without a scheduler, beside processes that live and end as a test says."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import sleeps_skipped
from tests.support.records import record
from tests.support.run_folders import made, recorded
from tests.support.told_machine import ToldMachine
from trainjob.backends import containers, detached
from trainjob.backends.base import Liveness, NotSubmittedError
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.machines import process, processes
from trainjob.machines.access import HERE
from trainjob.machines.processes import StartedScript
from trainjob.records.job import ClusterRecord, Plan, RequestRecord, Topology
from trainjob.records.submission import Remote, Submission

SCRIPT = {"pid": 5, "started": 7, "host": "h1", "folder": "/old"}
HOSTS = {"kind": "hosts", "hosts": ["h1", "h2"], "runs_dir": "/r"}


class World:
    """Processes of one run. `listens` says after which signal the script ends; `left` what each KILL finds."""

    def __init__(self) -> None:
        self.alive: bool | None = True
        self.listens: Callable[[list[str]], bool] = lambda _: False
        self.told: list[str] = []
        self.left: dict[str | None, list[list[int]]] = {}
        self.log: list[tuple[str, Any]] = []
        self.slept_s: list[float] = []

    def running(self, _: object, scripts: Sequence[StartedScript], signal: str = "") -> list[bool | None]:
        (script,) = scripts
        self.log += [(signal, script.folder)] if signal else []
        was = self.alive
        if signal:
            self.told.append(signal)
            self.alive = self.alive and not self.listens(self.told)
        return [was]

    def kill(
        self, _: object, folder: str, *, spared: StartedScript | None = None, host: str | None = None
    ) -> list[int]:
        self.log.append(("KILL", (folder, host, None if spared is None else spared.pid)))
        found = self.left.get(host, [])
        if host == "cut":
            raise UserError("is not reached")
        return found.pop(0) if len(found) > 1 else (found or [[]])[0]

    def killed(self) -> list[tuple[str | None, int | None]]:
        return [(told[1], told[2]) for name, told in self.log if name == "KILL"]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = World()
    monkeypatch.setattr(processes, "running", found.running)
    monkeypatch.setattr(processes, "kill", found.kill)
    found.slept_s = sleeps_skipped(monkeypatch)
    monkeypatch.setattr(containers, "remove", lambda *_: found.log.append(("containers", None)))
    monkeypatch.setattr(containers, "remove_partitions", lambda *_: found.log.append(("partitions", None)))
    return found


def run_on(folder: Path, file: dict[str, Any] | None = None, hosts: str = "h1", **more: Any) -> RunPaths:
    paths = made(folder, "abcd", state="RUNNING", native=SCRIPT, **more)
    topology = Topology(hosts, 2, 4, 2, 4, 1, 0, "CPU")
    plan = Plan("c", "hosts", "abcd", "single", topology)
    request = RequestRecord(ClusterRecord("c", file or {"kind": "local"}), {})
    paths.job.write_text(record(4, plan=plan, request=request, command=["true"]).to_json())
    return paths


def of(paths: RunPaths, **changes: Any) -> Submission:
    return recorded(paths).replace(**changes)


# --- Cancelled.


def test_a_script_that_ends_when_asked_has_cleaned_up_and_its_host_is_looked_at_once_more(
    world: World, tmp_path: Path
) -> None:
    paths = run_on(tmp_path, HOSTS, "h1,h2")
    world.listens = lambda _: True
    detached.cancel(paths, of(paths), 3.0)
    folder = str(paths.folder)
    assert world.log == [
        *(("TERM", folder), ("containers", None), ("KILL", (folder, None, None)), ("partitions", None))
    ]


def test_a_script_is_asked_twice_and_then_ends_after_its_ranks_and_other_hosts(world: World, tmp_path: Path) -> None:
    paths = run_on(tmp_path, HOSTS, "h1,h2")
    detached.cancel(paths, of(paths), 3.0)
    assert world.told == ["TERM", "TERM"]
    assert 15.9 < sum(world.slept_s) < 16.3, "3 s, 3 s, and 10 s for its trap"
    assert world.killed() == [("h2", 5), (None, 5), *world.killed()[2:]]
    assert sorted(map(str, world.killed()[2:])) == sorted(map(str, [("h1", None), ("h2", None), (None, None)]))
    world.told, world.slept_s[:] = [], []
    world.listens = lambda told: len(told) == 2
    detached.cancel(paths, of(paths), 30.0)
    assert 29.9 < sum(world.slept_s) < 30.3, "asked twice, it ended at once"


def test_of_a_script_that_had_ended_all_hosts_are_cleared(world: World, tmp_path: Path) -> None:
    paths = run_on(tmp_path, HOSTS, "h1,h2")
    world.alive = False
    detached.cancel(paths, of(paths), 3.0)
    assert world.told == ["TERM"]
    assert set(world.killed()[2:]) == {("h1", None), ("h2", None), (None, None)}
    assert sum(world.slept_s) == 0


def test_a_script_of_another_host_is_not_ended_here(world: World, tmp_path: Path) -> None:
    paths = run_on(tmp_path)
    world.alive = None
    with pytest.raises(UserError, match="run abcd was started on host h1, which is not this machine"):
        detached.cancel(paths, of(paths), 3.0)
    assert world.killed() == []


def test_without_a_known_script_everything_with_the_mark_is_ended(world: World, tmp_path: Path) -> None:
    paths = run_on(tmp_path)
    detached.cancel(paths, of(paths, native=None), 3.0)
    assert (world.told, world.killed()) == ([], [(None, None)])


def test_what_forks_as_it_is_killed_is_killed_again_and_what_survives_is_named(world: World, tmp_path: Path) -> None:
    paths = run_on(tmp_path)
    world.left[None] = [[11, 12], [13], []]
    detached.cancel(paths, of(paths, native=None), 3.0)
    assert (len(world.killed()), len(world.slept_s)) == (3, 2)
    world.left[None] = [[11, 12]]
    with pytest.raises(
        UserError,
        match=r"run abcd may still have processes: processes 11, 12 on this machine survive KILL: they wait for a disk",
    ):
        detached.cancel(paths, of(paths, native=None), 3.0)
    assert 9.9 < sum(world.slept_s) < 10.4
    assert world.log[-1][0] == "KILL", "partitions stay while it may use them"


def test_a_host_that_is_not_reached_is_named_once_and_not_tried_again(world: World, tmp_path: Path) -> None:
    paths = run_on(tmp_path, {**HOSTS, "hosts": ["h1", "cut"]}, "h1,cut")
    with pytest.raises(UserError, match=r"may still have processes: cut: is not reached\. ?:?") as refused:
        detached.cancel(paths, of(paths), 0.0)
    assert str(refused.value).count("cut: is not reached") == 1
    assert [host for host, _ in world.killed()].count("cut") == 1


# --- Its hosts.


@pytest.mark.parametrize(
    ("file", "listed", "hosts"),
    [
        (None, "localhost", ()),
        (HOSTS, "h1,h2", ("h1", "h2")),
        ({**HOSTS, "hosts": ["h1"]}, "h1", ()),
        ({"kind": "nowhere"}, "h1,h2", ()),
    ],
)
def test_only_a_run_on_several_hosts_has_hosts(
    tmp_path: Path, file: dict[str, Any] | None, listed: str, hosts: tuple[str, ...]
) -> None:
    assert detached.hosts_of(run_on(tmp_path, file, listed)) == hosts


def test_a_command_beside_a_rank_runs_on_the_ranks_host(tmp_path: Path) -> None:
    paths = run_on(tmp_path, HOSTS, "h1,h2")
    hosts = [
        words[words.index("--") + 1]
        for words in (detached.next_to(paths, of(paths), rank, ["sh"], terminal=rank == 0) for rank in range(4))
    ]
    assert hosts == ["h1", "h1", "h2", "h2"]
    paths = run_on(tmp_path / "four", {**HOSTS, "hosts": ["h1", "h2", "h3", "h4"]}, "h[1-4]")
    words = [detached.next_to(paths, of(paths), rank, ["sh"], terminal=False) for rank in range(4)]
    assert [one[one.index("--") + 1] for one in words] == ["h1", "h2", "h3", "h4"]
    assert detached.next_to(paths, of(paths), 0, ["sh"], terminal=True)[1] == "-t"
    paths.job.write_text(record(2, command=["true"]).to_json())
    assert detached.next_to(paths, of(paths), 1, ["sh", "x"], terminal=True) == ["sh", "x"]


# --- Started, asked, told.


def test_a_script_starts_with_the_path_of_its_ranks_on_this_machine_alone(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = run_on(tmp_path)
    begun: list[tuple[Any, ...]] = []

    def start(*words: object) -> StartedScript:
        begun.append(words)
        return StartedScript(5, 7, "h1", str(words[1]))

    monkeypatch.setattr(processes, "start", start)
    monkeypatch.setattr(process, "path_of_ranks", lambda *, is_command: f"/path/{is_command}")
    folder = str(paths.folder)
    native = detached.start(paths, of(paths))
    assert native == {"pid": 5, "started": 7, "host": "h1", "folder": folder, "ssh": None, "user": None}
    assert begun == [(HERE, folder, "job.sh", 1, "/path/True")]
    assert world.log == [], "a first attempt has nothing to end"
    paths.job.write_text("{")
    detached.start(paths, of(paths))
    assert begun[-1][-1] == "/path/True"
    run_on(tmp_path / "other", HOSTS, "h1,h2")
    paths.job.write_text((tmp_path / "other/abcd/job.json").read_text())
    detached.start(paths, of(paths))
    assert begun[-1][-1] == ""
    pod = ToldMachine()
    monkeypatch.setattr(detached, "place_of", lambda *_: (pod, "/there/abcd"))
    native = detached.start(paths, of(paths, remote=Remote("pod", "ml", "/there/abcd")))
    assert (native["ssh"], native["user"], native["folder"]) == ("pod", "ml", "/there/abcd")
    assert begun[-1] == (pod, "/there/abcd", "job.sh", 1, "")


@pytest.mark.parametrize(("state", "hosts"), [("RUNNING", ["h1", "h2", None]), ("FAILED", [None])])
def test_another_attempt_ends_first_what_the_last_one_left(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, hosts: list[str | None]
) -> None:
    paths = run_on(tmp_path, HOSTS, "h1,h2")
    paths.state.write_text(state + "\n")
    monkeypatch.setattr(processes, "start", lambda *_: StartedScript(5, 7, "h1", ""))
    detached.start(paths, of(paths, attempt=2))
    assert sorted(map(str, world.killed())) == sorted(str((host, None)) for host in hosts)
    assert ("containers", None) in world.log


def test_each_script_is_asked_for_on_its_machine_with_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, list[int]]] = []

    def running(machine: object, scripts: Sequence[StartedScript], signal: str = "") -> list[bool | None]:
        asked.append((machine, [script.pid for script in scripts]))
        if machine == "cut":
            raise UserError("cut is not reached")
        return [{1: True, 2: False, 3: None}.get(script.pid, True) for script in scripts]

    monkeypatch.setattr(processes, "running", running)
    monkeypatch.setattr(detached, "machine_at", lambda host, _user: host or "here")
    natives = [
        {**SCRIPT, "pid": 1},
        {**SCRIPT, "pid": 9, "ssh": "cut"},
        {**SCRIPT, "pid": 2},
        {**SCRIPT, "pid": 3, "ssh": None},
        {**SCRIPT, "pid": 4, "ssh": "pod", "user": "ml"},
    ]
    found = detached.ask(natives)
    unknown = Liveness.UNKNOWN
    assert [one.liveness for one in found] == [Liveness.ALIVE, unknown, Liveness.GONE, unknown, Liveness.ALIVE]
    assert asked == [("here", [1, 2, 3]), ("cut", [9]), ("pod", [4])]
    assert (found[1].note, found[0].note) == ("cut is not reached", None)
    assert found[3].note == "it was started on host h1: log in there to see its state"
    assert detached.ask([]) == []


def test_an_interruption_is_usr1_to_the_script(world: World) -> None:
    detached.interrupt(SCRIPT)
    assert world.log == [("USR1", "/old")]


def test_without_a_scheduler_there_is_no_queue_and_no_name(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path / "abcd")
    assert detached.argv(paths, "job.sh") == ["bash", "job.sh"]
    assert detached.identify(SCRIPT) == {}
    with pytest.raises(UserError, match="run abcd is an array, which needs a scheduler"):
        detached.start_elements(paths)
    detached.refuse_folder(tmp_path / "a b")
    with pytest.raises(UserError, match="has a line break in its path"):
        detached.refuse_folder(tmp_path / "a\nb")
    assert os.listdir(tmp_path) == []


def test_what_can_not_be_ended_before_a_new_start_leaves_the_run_as_it_was(world: World, tmp_path: Path) -> None:
    paths = run_on(tmp_path)
    world.left[None] = [[11]]
    with pytest.raises(NotSubmittedError, match=r"11 on this machine survive KILL.*so nothing was submitted"):
        detached.start(paths, of(paths, attempt=2))


def test_the_processes_of_one_host_are_ended_where_no_further_thread_can_be_started(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    paths = run_on(tmp_path)
    detached.cancel(paths, of(paths, native=None), 3.0)
    assert world.killed() == [(None, None)]
