"""Manifests and task facts: found without numpy, refused by number."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from trainjob.contract import tasks
from trainjob.data import manifest

DIGITS = manifest.read_manifest(manifest.SHIPPED / "digits")


def prepared(folder: Path, name: str) -> Path:
    assert DIGITS is not None
    (folder / name).mkdir(parents=True)
    (folder / name / manifest.FILE_NAME).write_text(dataclasses.replace(DIGITS, name=name).to_json())
    return folder / name


def refused(content: str) -> str:
    with pytest.raises(manifest.ManifestError) as caught:
        manifest.parse(content, "there")
    return str(caught.value)


def test_a_manifest_comes_back() -> None:
    assert DIGITS is not None
    assert manifest.parse(DIGITS.to_json()) == DIGITS


def test_the_digits_are_shipped_as_the_task_says() -> None:
    assert DIGITS is not None
    assert DIGITS.splits["train"].samples == tasks.BUILT_IN["digits-cnn"].samples


def test_a_data_set_of_the_site_comes_before_ours(tmp_path: Path) -> None:
    assert manifest.find("digits", tmp_path) == manifest.SHIPPED / "digits"
    assert manifest.find("digits", None) == manifest.SHIPPED / "digits"
    assert manifest.find("digits", prepared(tmp_path, "digits").parent) == tmp_path / "digits"
    assert manifest.find("nothing", tmp_path) is None


def test_names_are_those_that_can_be_found(tmp_path: Path) -> None:
    prepared(tmp_path, "mine")
    prepared(tmp_path, ".mine.part")
    (tmp_path / "empty").mkdir()
    assert manifest.names(tmp_path) == ("digits", "mine")
    assert manifest.names(None) == ("digits",)


def test_no_manifest_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert manifest.read_manifest(tmp_path) is None
    assert manifest.read_manifest(tmp_path / "file") is None


def test_another_format_names_both_numbers() -> None:
    message = refused(json.dumps({"format": 2}))
    assert message.startswith("there has format 2 and this trainjob reads 1: prepare the data set again")


@pytest.mark.parametrize("content", ["", "{", "nonsense"])
def test_a_manifest_that_is_not_json(content: str) -> None:
    assert refused(content).startswith("there is not JSON: ")


@pytest.mark.parametrize("fields", [{}, {"splits": 1}, {"splits": {"train": {}}}, {"splits": {}, "shape": [1]}])
def test_a_manifest_without_its_fields(fields: dict[str, object]) -> None:
    assert refused(json.dumps({"format": 1, **fields})).startswith("there does not have the fields of format 1: ")


def test_what_is_not_prepared_names_the_command_that_prepares_it(tmp_path: Path) -> None:
    cure = "Run: trainjob data prepare mine --kind KIND --from SOURCE"
    assert str(manifest.not_prepared("mine", tmp_path)) == (
        f"data set mine is not prepared: {tmp_path} has no mine/. {cure}"
    )
    assert "TRAINJOB_DATA_DIR is not set" in str(manifest.not_prepared("mine", None))


def test_a_task_of_the_users_own_is_its_own_entry() -> None:
    found = tasks.facts("mine:Task")
    assert found is not None
    assert (found.entry, found.samples) == ("mine:Task", None)
    assert tasks.facts("nothing") is None


@pytest.mark.parametrize("task", tasks.BUILT_IN.values())
def test_an_entry_of_ours_is_a_file_of_ours(task: tasks.TaskFacts) -> None:
    module, _, name = task.entry.partition(":")
    path = manifest.SHIPPED.parent.parent / (module.replace(".", "/") + ".py")
    assert f"class {name}" in path.read_text()
