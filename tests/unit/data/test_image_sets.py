"""Images as people have them: in folders by class and in tar shards, read in place, packed, or resized."""

from __future__ import annotations

import importlib
import os
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trainjob.contract.errors import UserError
from trainjob.data import checking, image_sets
from trainjob.data.manifest import read_manifest
from trainjob.data.prepare import prepare
from trainjob.data.shards import open_by_name
from trainjob.train.samples import crops
from trainjob.train.samples.arithmetic import Arithmetic
from trainjob.train.samples.augmentation import ShiftAndFlip
from trainjob.train.samples.batches import blocks
from trainjob.train.samples.crops import ResizedCrop
from trainjob.train.tasks.base import DataPlace, TaskData
from trainjob.train.tasks.images import image_data

pytest.importorskip("PIL", reason="pip install Pillow")

from tests.support.pictures import encoded, image_folder, tar_shard, web_dataset

SHAPE = (3, 16, 16)


def opened(folder: Path, augment: Any = None) -> TaskData:
    return image_data(DataPlace("mine", folder, 0, reads_every_byte=True).data_set(), augment)


def prepared(folder: Path, source: Path, kind: str = "imagefolder", **options: Any) -> Path:
    return prepare("mine", folder, kind=kind, source=str(source), **{"shape": SHAPE, **options})


def refused(message: str, folder: Path, source: Path, kind: str = "imagefolder", **options: Any) -> None:
    with pytest.raises(UserError, match=message):
        prepared(folder, source, kind, **options)
    assert not (folder / "mine").exists()


def taken(data: TaskData, instances: int, start: int = 0) -> list[Any]:
    """Return images and labels of each update, instances one after the other."""
    counts = Arithmetic(len(data.train), 1, 6, instances, 1, "drop", 3)
    parts = [list(blocks(data.train, counts, one, start, 6, workers=2)) for one in range(instances)]
    updates = list(zip(*parts, strict=True))
    return [
        [torch.cat([getattr(b, what) for b in update]).numpy() for what in ("inputs", "targets")] for update in updates
    ]


@pytest.mark.parametrize("store", ["resized", "packed", "index"])
@pytest.mark.parametrize("kind", ["imagefolder", "webdataset"])
def test_order_and_crops_are_the_same_for_any_number_of_instances_and_after_resuming(
    tmp_path: Path, kind: str, store: str
) -> None:
    source = (image_folder if kind == "imagefolder" else web_dataset)(tmp_path / "there")
    prepared(tmp_path, source, kind, store=store)
    data = opened(tmp_path, ResizedCrop(12))
    whole = taken(data, 1)
    assert whole[0][0].shape == (6, 3, 12, 12)
    for other, first in ((taken(data, 2), 0), (taken(data, 3), 0), (taken(data, 2, start=3), 3)):
        for ours, theirs in zip(whole[first:], other, strict=True):
            assert all(map(np.array_equal, ours, theirs))
    assert not np.array_equal(whole[0][0], whole[2][0])  # another epoch


def test_every_kind_and_store_gives_the_same_samples(tmp_path: Path) -> None:
    results = []
    for kind, make in (("imagefolder", image_folder), ("webdataset", web_dataset)):
        for store in ("packed", "index"):
            folder = tmp_path / kind / store
            prepared(folder, make(folder / "there"), kind, store=store)
            results.append(taken(opened(folder, ResizedCrop(12)), 2))
    for other in results[1:]:
        for ours, theirs in zip(results[0], other, strict=True):
            assert all(map(np.array_equal, ours, theirs))


def test_labels_follow_the_folders_and_the_middle_is_evaluated(tmp_path: Path) -> None:
    source = image_folder(tmp_path / "there", size=(64, 32))
    prepared(tmp_path, source, store="index")
    data = opened(tmp_path)
    assert data.train.gather(np.arange(12), None)[1].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    image = data.held_out.gather(np.array([0]), None)[0][0].numpy()
    # Red grows by 4 a pixel across, and the middle half of the width is shown, halved.
    assert image.shape == SHAPE
    assert image[0, 8, 0] == pytest.approx(4 * 16.5, abs=4)
    assert image[0, 8, -1] == pytest.approx(4 * 46.5, abs=4)
    resized = tmp_path / "resized"
    prepared(resized, source)
    stored = opened(resized).held_out.gather(np.array([0]), None)[0][0].numpy()
    assert np.array_equal(stored, image)


def test_other_augmentations_take_whole_images(tmp_path: Path) -> None:
    prepared(tmp_path, image_folder(tmp_path / "there"), store="index")
    images = [taken(opened(tmp_path, augment), 1)[0][0] for augment in (None, ShiftAndFlip(2, flip=True))]
    assert images[0].shape == images[1].shape == (6, *SHAPE)
    assert not np.array_equal(*images)


def test_a_folder_that_is_not_there_is_named_before_pillow_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = image_folder(tmp_path / "there")
    monkeypatch.setitem(sys.modules, "PIL", None)
    refused("/nowhere can't be read", tmp_path, Path("/nowhere"))
    refused("decoded by Pillow, which .* does not have", tmp_path, source)


def test_reading_images_shows_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "SAY_EVERY_S", 0.0)
    monkeypatch.setattr(image_sets, "AT_ONCE", 4)
    lines: list[str] = []
    prepared(tmp_path, image_folder(tmp_path / "there"), say=lines.append)
    assert lines[:2] == ["0 of 12 images read", "4 of 12 images read"]


def test_raw_images_are_the_same_where_torch_resizes_in_several_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(tmp_path, image_folder(tmp_path / "there"), store="resized")
    taken_by = {}
    for in_one_thread in (True, False):
        monkeypatch.setattr(crops, "resizes_in_one_thread", lambda answer=in_one_thread: answer)
        taken_by[in_one_thread] = taken(opened(tmp_path, ResizedCrop(12)), 2)
    for ours, theirs in zip(taken_by[True], taken_by[False], strict=True):
        assert all(map(np.array_equal, ours, theirs))


def test_crops_lie_inside_and_have_the_requested_areas() -> None:
    from trainjob.train.samples.draws import Draws

    many = np.arange(4000)
    heights, widths = np.full(4000, 300), np.full(4000, 500)
    boxes, mirrored = ResizedCrop(224, smallest=0.25).boxes(heights, widths, Draws(1, many, many))
    left, top, right, bottom = boxes.T
    assert left.min() >= 0 <= top.min()
    assert right.max() <= 500 >= 490 < right.max()
    assert bottom.max() <= 300
    shares, ratios = (right - left) * (bottom - top) / 150_000, (right - left) / (bottom - top)
    assert 0.24 < shares.min() < 0.27 < 0.77 < shares.max() < 0.81  # 400 × 300 is the most at 4 : 3
    assert 0.74 < ratios.min() < 0.77 < 1.3 < ratios.max() < 1.35
    assert 0.45 < mirrored.mean() < 0.55
    narrow, _ = ResizedCrop(224).boxes(np.full(9, 10), np.full(9, 1000), Draws(1, many[:9], many[:9]))
    assert np.isfinite(narrow).all()
    assert (narrow[:, 3] <= 10).all()


@pytest.mark.parametrize(
    ("mode", "form"),
    [("CMYK", "JPEG"), ("L", "JPEG"), ("P", "PNG"), ("RGBA", "PNG"), ("1", "PNG"), ("LA", "PNG"), ("I;16", "PNG")],
)
def test_images_of_other_modes_are_converted(tmp_path: Path, mode: str, form: str) -> None:
    content = encoded(3, "L" if mode == "I;16" else mode, form)
    if mode == "I;16":
        content = sixteen_bits()
    for number in range(2):
        path = tmp_path / "there" / f"class{number}" / "a.jpg"
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    for store in ("index", "resized"):
        for channels in (1, 3):
            folder = tmp_path / f"{store}{channels}"
            prepared(folder, tmp_path / "there", store=store, shape=(channels, 8, 8))
            image = opened(folder).train.gather(np.array([1]), None)[0]
            assert image.shape == (1, channels, 8, 8)
            assert int(image.max()) > int(image.min())
    assert opened(tmp_path / "index3").held_out is None


def sixteen_bits() -> bytes:
    import io

    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray((np.arange(1200).reshape(30, 40) * 50).astype(np.uint16)).save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.parametrize("store", ["resized", "packed", "index"])
def test_damaged_images_are_named_and_counted_and_skipped_on_request(tmp_path: Path, store: str) -> None:
    source = image_folder(tmp_path / "there")
    cut, empty = source / "train/class1/004.jpg", source / "train/class2/005.jpg"
    cut.write_bytes(cut.read_bytes()[:-300])
    empty.write_bytes(b"")
    refused(r"2 of the images are damaged: .*004.jpg: .*; .*005.jpg: .*--skip-damaged", tmp_path, source, store=store)
    output: list[str] = []
    prepared(tmp_path, source, store=store, skip_damaged=True, say=output.append)
    assert output[-1] == "skipped 2 damaged images"
    assert str(cut) in output[0]
    data = opened(tmp_path)
    assert len(data.train) == 10
    assert data.train.gather(np.arange(10), None)[1].tolist() == [0] * 4 + [1] * 3 + [2] * 3


def test_a_file_that_changed_since_it_was_indexed_is_refused_by_name(tmp_path: Path) -> None:
    source = image_folder(tmp_path / "there")
    prepared(tmp_path, source, store="index")
    changed = source / "train/class0/000.jpg"
    content, number = changed.read_bytes(), np.array([0])
    train = opened(tmp_path).train
    before = train.gather(number, None)[0]
    os.utime(changed, ns=(1, 1))  # copied without its time: the bytes decide
    assert torch.equal(train.gather(number, None)[0], before)
    open_by_name("mine", tmp_path).check_sources()
    changed.write_bytes(content[:-1] + b"x")
    with pytest.raises(UserError, match=r"000\.jpg has changed"):
        open_by_name("mine", tmp_path).check_sources()
    with pytest.raises(UserError, match=r"000\.jpg has changed since data set mine was made: sha256 .*--again"):
        train.gather(number, None)
    changed.write_bytes(content + b"x")
    with pytest.raises(UserError, match=r"000\.jpg has changed .*: \d+ bytes then, \d+ bytes now"):
        train.gather(number, None)
    changed.unlink()
    with pytest.raises(UserError, match=r"reads .*000\.jpg, which can't be read: No such file"):
        train.gather(number, None)


def test_an_index_older_than_its_shard_is_refused_by_name(tmp_path: Path) -> None:
    source = web_dataset(tmp_path / "there")
    prepared(tmp_path, source, "webdataset", store="index")
    shard = source / "train-000001.tar"
    content = bytearray(shard.read_bytes())
    content[600] ^= 1
    shard.write_bytes(content)
    with pytest.raises(UserError, match=r"train-000001\.tar has changed since .*data prepare mine --again"):
        opened(tmp_path).train.gather(np.arange(12), None)


def test_shards_that_can_not_be_read_are_named(tmp_path: Path) -> None:
    there = tmp_path / "there"
    lacking = tar_shard(there / "train-0.tar", {"a/1.jpg": encoded(1), "a/1.cls": b"1", "a/2.jpg": encoded(2)})
    refused(r"shard .*train-0\.tar: sample a/2 has an image and no label", tmp_path, there, "webdataset")
    tar_shard(lacking, {"1.cls": b"1"})
    refused("sample 1 has a label and no image", tmp_path, there, "webdataset")
    tar_shard(lacking, {"1.jpg": encoded(1), "1.cls": b"cat"})
    refused(r"train-0\.tar can't be read: invalid literal", tmp_path, there, "webdataset")
    tar_shard(lacking, {"1.cls": b"1", "1.jpg": encoded(1, size=(400, 300))})
    lacking.write_bytes(lacking.read_bytes()[:3000])
    refused(r"train-0\.tar", tmp_path, there, "webdataset")
    with tarfile.open(there / "train-1.tar.gz", "w:gz"):
        pass
    refused(r"train-1\.tar\.gz is compressed", tmp_path, there, "webdataset")
    refused("has no tar shards", tmp_path, tmp_path / "nowhere", "webdataset")


def test_folders_that_are_no_data_set_are_named(tmp_path: Path) -> None:
    source = image_folder(tmp_path / "there")
    refused("has no folders of images", tmp_path, source / "train/class0")
    refused("can't be read: No such file", tmp_path, tmp_path / "nowhere")
    refused("--store is boxed: give --store resized or packed or index", tmp_path, source, store="boxed")
    refused("1 or 3 channels", tmp_path, source, shape=(2, 8, 8))
    (source / "val/class9").mkdir()
    refused("has a class class9 that the training images lack", tmp_path, source)


def test_an_index_is_made_again_only_on_request(tmp_path: Path) -> None:
    source = image_folder(tmp_path / "there")
    prepared(tmp_path, source, store="index")
    prepared(tmp_path, source, store="index")
    with pytest.raises(UserError, match=r"the requested one is imagefolder in .*--store packed.*: give --again"):
        prepared(tmp_path, source, store="packed")
    prepared(tmp_path, source, store="packed", again=True)
    manifest = read_manifest(tmp_path / "mine")
    assert (manifest.kind, manifest.root, manifest.splits["test"].samples) == ("encoded", "", 4)


# -- Parquet, and folders that Hugging Face's datasets saved ------------------------------------


def rows(numbers: Any, label: str = "label") -> dict[str, list[Any]]:
    images = [{"bytes": encoded(number), "path": None} for number in numbers]
    return {"image": images, label: [number % 3 for number in numbers]}


def table(path: Path, columns: dict[str, list[Any]]) -> Path:
    arrow = pytest.importorskip("pyarrow", reason="pip install pyarrow")
    path.parent.mkdir(parents=True, exist_ok=True)
    made = arrow.table(columns)
    if path.suffix == ".arrow":
        with arrow.OSFile(str(path), "wb") as sink, arrow.ipc.new_stream(sink, made.schema) as writer:
            writer.write_table(made, max_chunksize=3)
    else:
        importlib.import_module("pyarrow.parquet").write_table(made, str(path), row_group_size=3)
    return path


@pytest.mark.parametrize(
    "names", [("data/train-0.parquet", "data/test-0.parquet"), ("train/data-0.arrow", "test/data-0.arrow")]
)
def test_tables_give_the_samples_that_folders_give(tmp_path: Path, names: tuple[str, str]) -> None:
    for name, count in zip(names, (12, 4), strict=True):
        table(tmp_path / "there" / name, rows(sorted(range(count), key=lambda number: (number % 3, number))))
    prepared(tmp_path, tmp_path / "there", "parquet", store="packed")
    prepared(tmp_path / "folder", image_folder(tmp_path / "folder/there"), store="packed")
    theirs = taken(opened(tmp_path / "folder", ResizedCrop(12)), 1)
    for ours, other in zip(taken(opened(tmp_path, ResizedCrop(12)), 3), theirs, strict=True):
        assert all(map(np.array_equal, ours, other))
    assert len(opened(tmp_path).held_out) == 4


def test_tables_that_do_not_fit_are_named(tmp_path: Path) -> None:
    there = tmp_path / "there"
    first = table(there / "a.parquet", rows(range(5)))
    refused("--store is index: give --store packed", tmp_path, there, "parquet", store="index")
    odd = table(there / "b.parquet", rows(range(3), "fine_label"))
    refused(r"b\.parquet has column label of type none, and a\.parquet has int64", tmp_path, there, "parquet")
    odd.unlink()
    table(first, {"image": ["a", "b"], "label": [0, 1]})
    refused(r"a\.parquet has columns image \(string\), label \(int64\); expected", tmp_path, there, "parquet")
    table(first, {"image": [{"bytes": encoded(1)}, {"bytes": None}], "label": [0, 1]})
    refused(r"1 of the images are damaged: .*a\.parquet, row 1", tmp_path, there, "parquet")
    first.write_bytes(first.read_bytes()[:-9])
    refused(r"a\.parquet can't be read", tmp_path, there, "parquet")
    first.unlink()
    refused(r"has no \.parquet and no \.arrow", tmp_path, there, "parquet")
