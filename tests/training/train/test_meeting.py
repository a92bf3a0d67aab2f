"""Where ranks meet: by a file on one host, on the chosen address across hosts."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from trainjob.launch import rank_environment
from trainjob.train import world

LIMIT = timedelta(seconds=200)


def exchange(rank: int, environ: dict[str, str], answers: Any, may_leave: Any) -> None:
    store = world.store(rank, 2, environ, LIMIT)
    assert store is not None
    store.set(f"from-{rank}", f"rank {rank}")
    other = store.get(f"from-{1 - rank}").decode()
    lines = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    mine = {os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}
    listens = [line[1].partition(":")[0] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in mine]
    store.set(f"done-{rank}", "yes")
    store.get(f"done-{1 - rank}")
    answers.put((rank, other, listens))
    may_leave.wait(200)  # rank 0 serves the store: the other may still be reading from it


def both(environ: dict[str, str]) -> dict[int, tuple[str, list[str]]]:
    spawn = multiprocessing.get_context("spawn")
    answers, may_leave = spawn.Queue(), spawn.Event()
    processes = [spawn.Process(target=exchange, args=(rank, environ, answers, may_leave)) for rank in (0, 1)]
    for process in processes:
        process.start()
    received = [answers.get(timeout=200) for _ in processes]
    may_leave.set()
    for process in processes:
        process.join(60)
    return {rank: (other, listens) for rank, other, listens in received}


@pytest.mark.parametrize("hosts", [1, 2])
def test_two_ranks_meet_and_no_interface_is_open_that_was_not_chosen(tmp_path: Path, hosts: int) -> None:
    environ = {
        "TRAINJOB_TOKEN": "a word",
        "TRAINJOB_RUN_DIR": str(tmp_path),
        "LOCAL_WORLD_SIZE": str(2 // hosts),
        "MASTER_ADDR": "127.0.0.2",
        "MASTER_PORT": str(rank_environment.free_port(os.getpid())),
    }
    met = both(environ)
    assert [met[rank][0] for rank in (0, 1)] == ["rank 1", "rank 0"]
    # 127.0.0.2, as /proc writes it, and nothing else
    assert met[0][1] == ([] if hosts == 1 else ["0200007F"])
    assert met[1][1] == []


def test_without_a_word_of_the_run_torch_finds_its_own_store() -> None:
    assert world.store(0, 2, {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}, LIMIT) is None


def test_a_file_system_without_locks_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(descriptor: int, operation: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuses)
    environ = {
        "TRAINJOB_TOKEN": "a word",
        "TRAINJOB_RUN_DIR": str(tmp_path),
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(rank_environment.free_port(os.getpid())),
    }
    store = world.store(0, 1, environ, LIMIT)
    assert store is not None
    store.set("a", "b")
    assert store.get("a") == b"b"
