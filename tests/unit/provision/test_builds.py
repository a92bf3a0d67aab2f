"""The folders that roles build in: what runs on the hosts, without Ansible."""

from __future__ import annotations

import errno
import importlib.util
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from trainjob.contract.package import companion


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


builds = load(companion("playbooks") / "module_utils/trainjob_builds.py")
cures = load(companion("playbooks") / "module_utils/trainjob_cures.py")
reading = load(companion("playbooks") / "module_utils/trainjob_output.py")
dataset = load(companion("playbooks") / "roles/dataset/filter_plugins/dataset.py")
proof = load(companion("playbooks") / "roles/proof/filter_plugins/proof.py")
ASKED = {"torch": "2.13.0"}


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "venvs" / "torch")


def build(path: Path, identity: Any) -> Any:
    folder = builds.next_folder(path, identity)
    os.makedirs(folder)
    builds.finish(path, folder, identity)
    return folder


def test_a_build_is_put_in_place_by_a_link_and_the_older_one_stays(path: Path) -> None:
    first = build(path, ASKED)
    second = build(path, {"torch": "2.14.0"})
    assert builds.current(path) == second
    assert builds.identity_of(second) == {"torch": "2.14.0"}
    assert builds.older(path) == [first]


def test_hosts_that_share_the_folder_finish_a_build_at_the_same_time(path: Path) -> None:
    folder = builds.next_folder(path, ASKED)
    os.makedirs(folder)
    with ThreadPoolExecutor(8) as hosts:
        done = [hosts.submit(builds.finish, path, folder, ASKED) for _ in range(200)]
    assert [one.exception() for one in done if one.exception()] == []
    assert builds.identity_of(builds.current(path)) == ASKED
    assert os.listdir(folder) == [builds.MARKER]


def test_a_build_is_found_where_the_folder_above_has_moved(path: Path, tmp_path: Path) -> None:
    build(path, ASKED)
    os.rename(tmp_path / "venvs", tmp_path / "elsewhere")
    assert builds.identity_of(builds.current(str(tmp_path / "elsewhere/torch"))) == ASKED


def test_an_unfinished_build_is_left_over_and_its_place_is_not_taken(path: Path) -> None:
    folder = builds.next_folder(path, ASKED)
    os.makedirs(folder)
    assert builds.leftovers(path) == [folder]
    assert builds.current(path) is None
    assert builds.next_folder(path, ASKED) == folder + "-2"
    finished = build(path, ASKED)
    builds.clear(path)
    assert os.listdir(builds.builds_of(path)) == [os.path.basename(finished)]


def test_a_finished_build_is_never_built_over(path: Path) -> None:
    folder = build(path, ASKED)
    assert builds.next_folder(path, ASKED) == folder + "-2"


def test_what_others_made_is_left_alone(path: Path) -> None:
    os.makedirs(path)
    with pytest.raises(builds.BuildError, match=r"was not made by these playbooks: move it away"):
        builds.refuse_foreign(path)
    os.rmdir(path)
    os.symlink("/usr", path)
    with pytest.raises(builds.BuildError, match=r"not made by these playbooks"):
        builds.refuse_foreign(path)


def test_a_path_under_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(builds.BuildError, match="is no folder"):
        builds.refuse_unwritable(str(tmp_path / "file" / "venv"))


@pytest.mark.parametrize(
    ("number", "cure"),
    [
        (errno.ENOSPC, "the disk is full: make room"),
        (errno.EACCES, "or run with --become"),
        (errno.EIO, "another path"),
    ],
)
def test_a_failing_disk_is_explained(number: Any, cure: str) -> None:
    message = builds.explained(OSError(number, os.strerror(number), "/x/y"), "/x")
    assert message.startswith("/x can't be made: /x/y")
    assert cure in message


def test_a_commands_failure_shows_its_last_lines_and_the_cure() -> None:
    stderr = "".join(f"line {number}\n" for number in range(20)) + "OSError: No space left on device\n"
    message = cures.of_output("pip install x", 1, "", stderr, "unused").splitlines()
    assert message[0] == "`pip install x` exited with 1:"
    assert len(message) == 10
    assert message[-1] == "The disk is full: make room there, or choose another path"


def test_a_failure_that_no_sign_tells_apart_has_the_cure_of_its_task() -> None:
    message = cures.of_output(
        "pip install x", 1, "", "ERROR: as another pip says it", "Add the wheel there"
    ).splitlines()
    assert message[1:] == ["ERROR: as another pip says it", "Add the wheel there"]


def test_next_to_no_room_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cures.of_room(str(tmp_path / "not/yet")) == ""
    monkeypatch.setattr(cures, "LITTLE_ROOM_MB", float("inf"))
    assert f"MB are left at {tmp_path}: make room there" in cures.of_room(str(tmp_path / "not/yet"))


def test_a_program_that_is_not_there_is_named_with_the_cure() -> None:
    error = OSError(errno.ENOENT, "No such file")
    assert cures.of_start("python3.8", error, "Name one") == "python3.8 is not on this host. Name one"


def cut(*_: Any) -> None:
    raise KeyboardInterrupt


def test_a_build_that_was_cut_before_its_link_is_built_anew_and_the_marked_one_counts_as_older(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = builds.next_folder(path, ASKED)
    os.makedirs(folder)
    with monkeypatch.context() as patch:
        patch.setattr(builds.os, "symlink", cut)
        with pytest.raises(KeyboardInterrupt):
            builds.finish(path, folder, ASKED)
    assert builds.current(path) is None
    again = build(path, ASKED)
    assert (builds.current(path), builds.older(path)) == (again, [folder])


@pytest.mark.parametrize(
    ("message", "value"), [('noise\n{"a": 1}\n', {"a": 1}), ("noise\n", None), ("", None), ("[1\n", None)]
)
def test_the_last_line_is_read_where_it_is_json(message: str, value: dict[str, Any] | None) -> None:
    assert reading.value(message) == value


def test_a_data_sets_options_become_flags() -> None:
    assert dataset.dataset_flag({"key": "held_out", "value": 5}) == "--held-out=5"


def test_the_verdict_names_every_host_that_is_not_standing() -> None:
    hostvars = {"a": {"proof_result": {"value": {"updates": 8}}}, "b": {}}
    assert proof.proof_verdict(["a", "b"], hostvars, ["a"]) == {
        "ok": False,
        "hosts": {
            "a": {"ok": True, "job": {"updates": 8}},
            "b": {"ok": False, "why": "a task failed on it, or it could not be reached"},
        },
    }
    assert not proof.proof_verdict([], {}, [])["ok"]
