"""Weights become one file, whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.checkpoint_folders import WIDTH, change_index, saved
from tests.support.run_folders import made
from trainjob.backends import mirror
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.lifecycle.export import export
from trainjob.records import checkpoints
from trainjob.records.safetensors import ROWS, header, read_header, read_metadata


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return made(tmp_path, "abcd")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out/w.safetensors"


def no_warning(line: str) -> None:
    raise AssertionError(line)


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_the_weights_of_all_parts_are_one_tensor(paths: RunPaths, target: Path, parts: int) -> None:
    saved(paths, 100, parts=parts)
    saved(paths, 200, parts=parts, rows=5)
    assert export(paths, target, no_warning).update == 200
    with target.open("rb") as stream:
        place = read_header(stream, target)[0]["w"]
        stream.seek(place.start)
        assert stream.read() == b"".join(bytes([row]) * WIDTH for row in range(5))
    assert (place.shape, read_metadata(target)) == ([5, WIDTH], {"update": "200"})
    assert os.listdir(target.parent) == [target.name]


def test_a_tensor_that_only_one_part_has_is_exported_with_the_others(paths: RunPaths, target: Path) -> None:
    folder = saved(paths, 100, parts=2)
    part = folder / checkpoints.part_names(checkpoints.MODEL, 2)[0]
    kinds = {"b": ("U8", [1, WIDTH]), "w": ("U8", [2, WIDTH])}
    beginning, _ = header(kinds, {"update": "100", ROWS: json.dumps({"w": [0, 4]})})
    facts = checkpoints.write_durably(part, [beginning + bytes(3 * WIDTH)])
    files = json.loads((folder / checkpoints.INDEX).read_text())["files"]
    change_index(folder, files={**files, part.name: facts._asdict()})
    export(paths, target, no_warning)
    with target.open("rb") as stream:
        places = read_header(stream, target)[0]
    assert {name: place.shape for name, place in places.items()} == {"b": [1, WIDTH], "w": [4, WIDTH]}


def test_the_average_is_exported_where_a_run_keeps_one(paths: RunPaths, target: Path) -> None:
    saved(paths, 100)
    with pytest.raises(UserError, match="run abcd keeps no average of its weights: leave out --averaged"):
        export(paths, target, no_warning, averaged=True)
    folder = saved(paths, 200, averaged=True)
    export(paths, target, no_warning, averaged=True)
    assert target.read_bytes() == (folder / "averaged.safetensors").read_bytes()


def test_a_damaged_checkpoint_is_passed_over_and_named(paths: RunPaths, target: Path) -> None:
    with pytest.raises(UserError, match="run abcd has no sound checkpoint yet"):
        export(paths, target, no_warning)
    saved(paths, 100)
    (saved(paths, 200) / "model.safetensors").unlink()
    warned: list[str] = []
    assert export(paths, target, warned.append).update == 100
    assert len(warned) == 1
    (paths.checkpoint(100) / "index.json").unlink()
    with pytest.raises(UserError, match="no checkpoint of run abcd can be exported"):
        export(paths, target, warned.append)


def test_a_target_that_can_not_be_written_is_said_and_nothing_is_left(
    paths: RunPaths, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(paths, 100)
    target.mkdir()
    with pytest.raises(UserError, match=r"w\.safetensors can't be written: Is a directory: choose a file"):
        export(paths, target, no_warning)
    assert os.listdir(target.parent) == [target.name]
    asked: list[str] = []
    monkeypatch.setattr(mirror, "fetch_checkpoints", lambda one, _: asked.append(one.id))
    with pytest.raises(UserError, match="No such file or directory"):
        export(paths, target.parent / "missing/w", no_warning)
    assert asked == ["abcd"]
