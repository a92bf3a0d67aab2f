"""What a run holds besides its processes, asked of an engine and a machine that answer as a test says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.records import record
from tests.support.told_machine import ToldMachine
from trainjob.backends import containers
from trainjob.backends.base import NotSubmittedError
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.kinds.table import cluster_of
from trainjob.machines import process
from trainjob.machines.process import CommandError, Completed
from trainjob.records.job import ClusterRecord, RequestRecord
from trainjob.render.request import Request

DIGEST = "registry.example/torch@sha256:" + "1" * 64


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> ToldMachine:
    found = ToldMachine("this machine")
    monkeypatch.setattr(containers, "place_of", lambda paths, _: (found, str(paths.folder)))
    return found


def run_with(folder: Path, file: dict[str, Any]) -> RunPaths:
    paths = RunPaths(folder)
    paths.job.write_text(record(request=RequestRecord(ClusterRecord("c", file), {})).to_json())
    return paths


def in_container(folder: Path, runtime: str = "docker") -> RunPaths:
    return run_with(folder, {"kind": "local", "container": {"runtime": runtime, "image": "torch:1"}})


@pytest.mark.parametrize(
    ("output", "digest"),
    [
        (f'["{DIGEST}","other@sha256:2"]sha256:33', DIGEST),
        (f'["{DIGEST}"]sha256:33\n', DIGEST),
        ("[]sha256:33\n", "sha256:33"),
        ("[]33\n", "sha256:33"),
        ("null33\n", "sha256:33"),
        ("nullsha256:33\n", "sha256:33"),
    ],
)
def test_an_image_is_the_registrys_digest_or_its_own_id(
    machine: ToldMachine, tmp_path: Path, output: str, digest: str
) -> None:
    machine.answers = lambda _: (0, output.encode())
    assert containers.image_digest(in_container(tmp_path), None) == digest
    assert machine.calls == [("docker", "image", "inspect", "--format", "{{json .RepoDigests}}{{.Id}}", "torch:1")]


def test_an_image_that_the_engine_lacks_stops_the_submission(machine: ToldMachine, tmp_path: Path) -> None:
    machine.answers = lambda _: (1, b"")
    with pytest.raises(NotSubmittedError, match="failed"):
        containers.image_digest(in_container(tmp_path), None)


@pytest.mark.parametrize(
    "file", [{"kind": "local"}, {"kind": "nowhere"}, {"kind": "slurm", "container": {"runtime": "apptainer"}}]
)
def test_a_run_without_an_engine_asks_none(machine: ToldMachine, tmp_path: Path, file: dict[str, Any]) -> None:
    paths = run_with(tmp_path, file)
    assert containers.image_digest(paths, None) is None
    containers.remove(paths, None)
    containers.remove(RunPaths(tmp_path / "missing"), None)
    assert machine.calls == []


def test_containers_are_found_by_their_label_and_removed_twice_if_need_be(machine: ToldMachine, tmp_path: Path) -> None:
    paths = in_container(tmp_path, "podman")
    codes = [0]

    def answers(words: Sequence[str]) -> tuple[int, bytes]:
        return (0, b"a1\nb2\n") if words[1] == "ps" else (codes.pop(0), b"")

    machine.answers = answers
    containers.remove(paths, None)
    listing = ("podman", "ps", "--all", "--quiet", "--no-trunc", "--filter", f"label=trainjob.run={tmp_path}")
    assert machine.calls == [listing, ("podman", "rm", "--force", "a1", "b2")]
    codes, machine.calls = [125, 0], []
    containers.remove(paths, None)
    assert [words[1] for words in machine.calls] == ["ps", "rm", "rm"]
    machine.calls, machine.answers = [], lambda _: (0, b"\n")
    containers.remove(paths, None)
    assert [words[1] for words in machine.calls] == ["ps"]
    machine.answers = lambda _: CommandError("no engine")
    containers.remove(paths, None)


def test_what_runs_here_in_an_engine_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    class Asked:
        def __init__(self, file: dict[str, object]) -> None:
            self.cluster = cluster_of(file)

    def found(file: dict[str, object]) -> object:
        return containers.find(cast("Request", Asked(file)))

    inside = {"runtime": "docker", "image": "torch:1"}
    here = found({"kind": "local", "container": inside})
    assert here == cluster_of({"kind": "local", "container": inside}).container
    assert found({"kind": "local"}) is None
    codes = [0, 1]
    calls: list[list[str]] = []

    def run(words: list[str], *, check: bool) -> Completed:
        calls.append(words)
        assert not check
        return Completed(tuple(words), codes.pop(0), b"", "")

    monkeypatch.setattr(process, "run", run)
    container = cluster_of({"kind": "local", "container": inside}).container
    assert [containers.has_image(container) for _ in range(2)] == [True, False]
    assert calls[0] == ["docker", "image", "inspect", "torch:1"]


POD = {"kind": "ipu-pod", "ipus": 4, "hosts": ["h"], "vipu": {"server": "ctl"}}


def test_the_partitions_of_a_run_are_removed_and_a_failure_is_an_error(machine: ToldMachine, tmp_path: Path) -> None:
    paths = run_with(tmp_path, POD)
    containers.remove_partitions(paths, None)
    assert machine.calls[0][-2:] == (str(tmp_path), "ctl")
    machine.answers = lambda _: (1, b"")
    with pytest.raises(UserError, match=r"its partition can't be removed from this machine: it says why"):
        containers.remove_partitions(paths, None)
    file = json.loads(json.dumps({**POD, "vipu": {"partition": "p"}}))
    machine.calls, machine.answers = [], lambda _: (0, b"")
    containers.remove_partitions(run_with(tmp_path, file), None)
    assert machine.calls[0][-1] == ""


def test_where_there_are_no_partitions_nobody_is_asked(machine: ToldMachine, tmp_path: Path) -> None:
    containers.remove_partitions(run_with(tmp_path, {"kind": "local"}), None)
    containers.remove_partitions(RunPaths(tmp_path / "element that has not begun"), None)
    assert machine.calls == []
