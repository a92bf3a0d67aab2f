from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.support.printed_json import reported
from trainjob.cli.site.data import app
from trainjob.contract.errors import UserError
from trainjob.data import manifest
from trainjob.data.checking import DamagedDataError, check_folder, list_prepared
from trainjob.data.manifest import SHIPPED
from trainjob.data.prepare import WAYS, prepare
from trainjob.data.shards import open_by_name
from trainjob.data.sizes import Sizes, parse_shape
from trainjob.data.synthetic import MadeUp

SMALL: dict[str, Any] = {"samples": 50, "held_out": 20, "shape": (3, 8, 8), "classes": 7}


def test_the_shipped_digits_can_be_copied(tmp_path: Path) -> None:
    folder = prepare("digits", tmp_path)
    assert (folder / "train-images.bin").read_bytes() == (SHIPPED / "digits/train-images.bin").read_bytes()
    assert prepare("digits", tmp_path) == folder


def test_synthetic_has_the_sizes_asked_for(tmp_path: Path) -> None:
    prepare("synthetic", tmp_path, **SMALL)
    opened = open_by_name("synthetic", tmp_path)
    train = opened.split("train")
    assert (train.images.shape, opened.split("test").images.shape) == ((50, 3, 8, 8), (20, 3, 8, 8))
    assert set(train.labels.tolist()) <= set(range(7))
    (listed,) = [one for one in list_prepared(tmp_path) if one.name == "synthetic"]
    assert listed.samples == {"train": 50, "test": 20}


def test_synthetic_in_memory_is_what_the_files_hold(tmp_path: Path) -> None:
    # More than one chunk of them.
    sizes = Sizes(samples=5000, held_out=30, shape=(1, 4, 4), classes=3, seed=5)
    prepare("synthetic", tmp_path, **sizes._asdict())
    opened, made_up = open_by_name("synthetic", tmp_path), MadeUp(sizes)
    for split in ("train", "test"):
        assert np.array_equal(opened.split(split).images, made_up.split(split).images)
        assert np.array_equal(opened.split(split).labels, made_up.split(split).labels)
    assert MadeUp(sizes).identity() == made_up.identity() != MadeUp(sizes._replace(seed=6)).identity()


def test_other_sizes_than_those_there_are_refused(tmp_path: Path) -> None:
    prepare("synthetic", tmp_path, **SMALL)
    prepare("synthetic", tmp_path, **SMALL)
    prepare("synthetic", tmp_path)  # nothing said of sizes: whatever is there
    with pytest.raises(UserError, match=r"50 and 20 .*3x8x8 .*the requested one is .*60 and 20 .*--again"):
        prepare("synthetic", tmp_path, **{**SMALL, "samples": 60})
    prepare("synthetic", tmp_path, again=True, **{**SMALL, "samples": 60})
    assert len(open_by_name("synthetic", tmp_path).split("train").labels) == 60


@pytest.mark.parametrize("wrong", [{"samples": 0}, {"shape": (3, 0, 8)}, {"classes": 70000}, {"seed": -1}])
def test_sizes_that_make_no_data_set_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        prepare("synthetic", tmp_path, **wrong)
    assert list(tmp_path.iterdir()) == []


def test_a_shape_is_three_numbers() -> None:
    assert parse_shape("3x32x16") == (3, 32, 16)
    for wrong in ("3x32", "axbxc", ""):
        with pytest.raises(UserError, match="give --shape 3x32x32"):
            parse_shape(wrong)


def test_an_unknown_name_or_option_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean cifar10"):
        prepare("cifar", tmp_path)
    with pytest.raises(UserError, match="digits has no option --samples: it takes no options"):
        prepare("digits", tmp_path, samples=3)
    with pytest.raises(UserError, match="synthetic has no option --from: it takes --samples, --held-out"):
        prepare("synthetic", tmp_path, source="x")


def test_a_damaged_data_set_is_named(tmp_path: Path) -> None:
    folder = prepare("digits", tmp_path)
    with open(folder / "test-images.bin", "r+b") as stream:
        stream.write(b"\xff")
    with pytest.raises(DamagedDataError, match=r"test-images.bin: expected sha256 .* trainjob data prepare digits"):
        check_folder(folder)
    with pytest.raises(DamagedDataError):
        prepare("digits", tmp_path)
    prepare("digits", tmp_path, again=True)


# -- the command -------------------------------------------------------------------------------


def run(*words: str) -> str:
    ended = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def test_the_command_takes_sizes(tmp_path: Path) -> None:
    words = ["--data-dir", str(tmp_path), "--samples", "40", "--held-out", "8", "--shape", "1x8x8", "--classes", "3"]
    found = reported(run("prepare", "synthetic", *words, "--seed", "4", "--json"))
    assert found == {"name": "synthetic", "folder": str(tmp_path / "synthetic")}
    manifest = check_folder(tmp_path / "synthetic")
    assert (manifest.shape, manifest.classes, manifest.splits["train"].samples) == ((1, 8, 8), 3, 40)
    assert "synthetic  test 8, train 40" in run("list", "--data-dir", str(tmp_path))
    assert "synthetic is sound" in run("check", "synthetic", "--data-dir", str(tmp_path))


def test_the_command_that_prepares_a_data_set_is_whole() -> None:
    assert tuple(WAYS) == manifest.BUILT_IN
    assert manifest.how_to_prepare("cifar10") == "trainjob data prepare cifar10"
    assert manifest.how_to_prepare("novels") == "trainjob data prepare novels --kind KIND --from SOURCE"


@pytest.mark.parametrize("umask", [0, 0o077])
def test_a_data_set_has_the_same_modes_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        folder = prepare("digits", tmp_path / "data")
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder.parent, folder)} == {0o755}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o644}
