"""Which checkpoints are sound, and what is wrong with one that is not. Without torch."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.checkpoint_folders import change_index, saved, weights, write_index
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.records import checkpoints
from trainjob.records.checkpoints import INDEX, MODEL, TRAINING, NewerContractError, StoredFile
from trainjob.records.files import DamagedError


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return RunPaths(tmp_path / "abcd-run")


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("averaged", [False, True])
def test_a_sound_checkpoint_has_its_files_by_name(paths: RunPaths, parts: int, averaged: bool) -> None:
    found = checkpoints.check(saved(paths, 200, parts=parts, averaged=averaged))
    assert (found.update, found.folder) == (200, paths.checkpoint(200))
    names = (
        ["model.safetensors"]
        if parts == 1
        else ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    )
    assert [path.name for path in found.model] == names
    assert [path.name for path in found.training] == [name.replace("model", "training") for name in names]
    assert [path.name for path in found.averaged] == ([name.replace("model", "averaged") for name in names] * averaged)
    assert found.all_files == [*found.model, *found.training, *found.averaged]
    assert checkpoints.read(found.folder) == found
    assert set(checkpoints.files_of(found.folder) or {}) == {path.name for path in found.all_files}


def test_the_newest_comes_first_and_other_names_are_none(paths: RunPaths) -> None:
    assert (checkpoints.folders(paths.checkpoints), checkpoints.newest(paths)) == ([], None)
    for name in (
        "update-00000200",
        "update-00001000",
        "update-123456789",
        "update-1",
        "update-000000001",
        "x",
        "set-aside-update-00000300",
    ):
        (paths.checkpoints / name).mkdir(parents=True)
    assert [checkpoints.update_of(one) for one in checkpoints.folders(paths.checkpoints)] == [123456789, 1000, 200]
    assert checkpoints.newest(paths) == paths.checkpoints / "update-123456789"
    with pytest.raises(ValueError, match="update-1"):
        checkpoints.update_of(paths.checkpoints / "update-1")
    assert checkpoints.folders(paths.checkpoints / "x" / "missing") == []
    (paths.folder / "file").touch()
    assert checkpoints.folders(paths.folder / "file") == []


def test_a_folder_that_can_not_be_listed_is_said(paths: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", denied)
    with pytest.raises(UserError, match=r"checkpoints can't be read \(Permission denied\)"):
        checkpoints.folders(paths.checkpoints)


def cut(folder: Path) -> None:
    content = (folder / MODEL).read_bytes()
    (folder / MODEL).write_bytes(content[:-1])


def other_bytes(folder: Path) -> None:
    content = (folder / TRAINING).read_bytes()
    (folder / TRAINING).write_bytes(content[:-1] + b"\xff")


def without_model(folder: Path) -> None:
    (folder / MODEL).unlink()


def pipe_for_model(folder: Path) -> None:
    (folder / MODEL).unlink()
    os.mkfifo(folder / MODEL)


def of_another_update(folder: Path) -> None:
    weights(folder / MODEL, 100, range(4), 4)
    content = (folder / MODEL).read_bytes()
    stored = checkpoints.write_durably(folder / MODEL, [content])
    files = {name: one._asdict() for name, one in (checkpoints.files_of(folder) or {}).items()}
    change_index(folder, files={**files, MODEL: stored._asdict()})


DAMAGE: list[tuple[Callable[[Path], object], str]] = [
    (cut, r"model\.safetensors has \d+ bytes and should have \d+"),
    (other_bytes, r"training\.safetensors has sha256 \w+ and should have \w+"),
    (without_model, r"model\.safetensors is missing"),
    (pipe_for_model, "is not a regular file"),
    (of_another_update, r"model\.safetensors holds update 100, and the folder is of update 200"),
    (lambda folder: (folder / INDEX).unlink(), r"index\.json is missing or broken: is missing"),
    (lambda folder: (folder / INDEX).write_text("{"), r"index\.json is missing or broken: is not JSON"),
    (lambda folder: (folder / INDEX).write_text("[]"), r"index\.json is missing or broken: it lists no files"),
    (lambda folder: write_index(folder, files=[]), "it lists no files"),
    (lambda folder: change_index(folder, contract="1"), "contract is '1', expected a number"),
    (lambda folder: change_index(folder, contract=True), "contract is True, expected a number"),
    (lambda folder: change_index(folder, files={}), r"index\.json does not mention model\.safetensors"),
    (lambda folder: change_index(folder, files={MODEL: 1}), r"index\.json does not mention model\.safetensors"),
    (lambda folder: change_index(folder, parts=0), "parts is 0"),
    (lambda folder: change_index(folder, parts=131_073), "parts is 131073"),
    (lambda folder: change_index(folder, parts=True), "parts is True"),
    (lambda folder: change_index(folder, parts=131_072), r"does not mention model-00001-of-131072\.safetensors"),
    (lambda folder: change_index(folder, update=100), "is of update 100, and the folder of update 200"),
    (lambda folder: change_index(folder, update=...), "is of update None, and the folder of update 200"),
    (lambda folder: change_index(folder, run="other"), "it belongs to run 'other', and this is run abcd-run"),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "said"), DAMAGE)
def test_what_is_wrong_with_a_checkpoint_is_said(paths: RunPaths, damage: Callable[[Path], object], said: str) -> None:
    folder = saved(paths, 200)
    damage(folder)
    with pytest.raises(DamagedError, match=said):
        checkpoints.check(folder)


def test_a_link_to_a_checkpoint_is_none_of_this_run(paths: RunPaths) -> None:
    folder = saved(paths, 200)
    paths.checkpoint(300).symlink_to(folder)
    paths.checkpoint(400).touch()
    for update in (300, 400, 500):
        with pytest.raises(DamagedError, match="it is not a folder of its own"):
            checkpoints.check(paths.checkpoint(update))


def test_what_a_newer_version_wrote_is_not_called_damaged(paths: RunPaths) -> None:
    folder = saved(paths, 200)
    change_index(folder, contract=2)
    for reads in (checkpoints.check, checkpoints.read):
        with pytest.raises(NewerContractError, match="speaks contract 2 and this trainjob speaks 1"):
            reads(folder)
    with pytest.raises(NewerContractError):
        checkpoints.newest_sound(paths.checkpoints, lambda _: None)


def test_a_checkpoint_names_its_run_and_stays_with_a_folder_that_was_renamed(paths: RunPaths) -> None:
    folder = saved(paths, 200)
    change_index(folder, run="abcd-run")
    assert checkpoints.check(folder).update == 200
    assert checkpoints.run_of(paths.checkpoints) == "abcd-run"
    (paths.checkpoints / checkpoints.RUN_ID).write_text("abcd-run\n")
    renamed = paths.folder.rename(paths.folder.with_name("other"))
    assert checkpoints.run_of(renamed / "checkpoints") == "abcd-run"
    assert checkpoints.check(renamed / "checkpoints" / folder.name).update == 200


def test_a_damaged_index_has_no_files_and_is_an_error_to_who_reads_it(paths: RunPaths) -> None:
    folder = saved(paths, 200)
    stored = checkpoints.files_of(folder)
    assert stored is not None
    assert stored[MODEL] == StoredFile((folder / MODEL).stat().st_size, checkpoints.sha256_of(folder / MODEL))
    for content in ("{", "[]", '{"files": {"a": 1}}', '{"files": {"a": {"bytes": "x", "sha256": "y"}}}', "{}"):
        (folder / INDEX).write_text(content)
        assert checkpoints.files_of(folder) is None
    with pytest.raises(UserError, match=r"checkpoint .*update-00000200: index\.json is missing or broken"):
        checkpoints.read(folder)
    shutil.rmtree(folder)
    assert checkpoints.files_of(folder) is None


def test_the_newest_sound_one_is_taken_and_those_passed_over_are_named(paths: RunPaths) -> None:
    assert (checkpoints.passed_over(paths.checkpoints), checkpoints.newest_sound(paths.checkpoints, print)) == (
        [],
        None,
    )
    for update in (100, 200, 300):
        saved(paths, update)
    cut(paths.checkpoint(300))
    warned: list[str] = []
    found = checkpoints.newest_sound(paths.checkpoints, warned.append)
    assert found is not None
    assert found.update == 200
    assert len(warned) == 1
    assert warned == checkpoints.passed_over(paths.checkpoints)
    assert "update-00000300 is passed over: model.safetensors has" in warned[0]
    for update in (100, 200):
        cut(paths.checkpoint(update))
    with pytest.raises(
        UserError, match=r"update-00000300 .*; .*update-00000100 .*No checkpoint of this run is sound"
    ) as refused:
        checkpoints.passed_over(paths.checkpoints)
    assert refused.value.problem.code == checkpoints.DAMAGED


def test_set_aside_are_all_and_nothing_is_in_their_way(paths: RunPaths) -> None:
    for update in (100, 200, 300):
        saved(paths, update)
    before = paths.checkpoints / "set-aside-update-00000100"
    (before / "left").mkdir(parents=True)
    (paths.checkpoints / "set-aside-update-00000200").symlink_to("nowhere")
    checkpoints.set_aside(paths.checkpoints)
    assert checkpoints.folders(paths.checkpoints) == []
    names = [f"set-aside-update-00000{number}00" for number in (1, 2, 3)]
    assert sorted(os.listdir(paths.checkpoints)) == names
    assert all((paths.checkpoints / name / INDEX).is_file() for name in names)
    assert not (before / "left").exists()


@pytest.mark.parametrize(
    ("durable_s", "margin_s", "is_late", "margin"),
    [(10.0, 20.0, False, 80), (10.1, 20.0, True, 81), (0.0, 0.0, False, 60), (1e9, 300.0, True, 65_535)],
)
def test_two_checkpoints_must_fit_before_the_time_limit(
    durable_s: float, margin_s: float, is_late: bool, margin: int
) -> None:
    assert checkpoints.is_too_late(durable_s, margin_s) is is_late
    assert checkpoints.margin_for(durable_s) == margin
