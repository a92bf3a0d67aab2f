"""Shifts and flips of whole batches are, bit for bit, those of one image after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainjob.train.samples.augmentation import ShiftAndFlip
from trainjob.train.samples.draws import Draws

SHAPES = [(1, 8, 8), (3, 32, 32), (3, 12, 12), (2, 5, 7), (3, 16, 24)]


def draws(count: int, seed: int = 7) -> Draws:
    return Draws(seed, np.full(count, 3), np.arange(count))


def one_by_one(images: Any, indices: Any, most: int, flip: bool, drawn: Draws) -> Any:
    size = 2 * most + 1
    down, right = drawn.below(size), drawn.below(size)
    mirrored = drawn.below(2) if flip else np.zeros(len(indices))
    height, width = images.shape[2:]
    changed = []
    for place, index in enumerate(indices):
        padded = np.pad(images[index], ((0, 0), (most, most), (most, most)))
        window = padded[:, down[place] : down[place] + height, right[place] : right[place] + width]
        changed.append(window[:, :, ::-1] if mirrored[place] else window)
    return np.stack(changed)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("most", "flip"), [(4, True), (1, False), (0, True), (3, True)])
@pytest.mark.parametrize("samples", [1, 2, 50])
def test_whole_batches_are_as_one_by_one(shape: Any, most: int, flip: bool, samples: int) -> None:
    random = np.random.default_rng(samples)
    images = random.integers(1, 256, (samples, *shape), np.uint8)  # no zero but those that move in
    indices = random.integers(0, samples, 400)  # the first and the last image among them
    found = ShiftAndFlip(most, flip)(images, indices, draws(400))
    assert np.array_equal(found, one_by_one(images, indices, most, flip, draws(400)))
    assert found.flags.c_contiguous
    assert found.flags.writeable


def test_a_read_only_map_is_read_where_it_lies(tmp_path: Path) -> None:
    stored = np.random.default_rng(0).integers(0, 256, (20, 3, 32, 32), np.uint8)
    (tmp_path / "images").write_bytes(stored.tobytes())
    images = np.asarray(np.memmap(tmp_path / "images", np.uint8, "r", shape=stored.shape))
    indices = np.arange(20)
    found = ShiftAndFlip(4, flip=True)(images, indices, draws(20))
    assert np.array_equal(found, one_by_one(stored, indices, 4, True, draws(20)))
    assert np.array_equal(images, stored)


def test_every_place_and_both_sides_come_up_equally_often() -> None:
    image = np.zeros((1, 1, 8, 8), np.uint8)
    image[0, 0, 3, 3] = 255  # where this pixel goes tells shift and side
    found = ShiftAndFlip(1, flip=True)(image, np.zeros(9000, np.int64), draws(9000))
    _, _, rows, columns = np.nonzero(found)
    assert len(rows) == 9000
    counts = np.bincount(rows * 8 + columns, minlength=64).reshape(8, 8)
    # Columns 2, 3, 4 as it is, and 5, 4, 3 mirrored.
    assert counts[2:5, 2:6].sum() == 9000
    expected = np.array([1, 2, 2, 1]) / 18 * 9000
    assert np.abs(counts[2:5, 2:6] - expected).max() < 5 * np.sqrt(expected.max())


def test_a_sample_is_changed_by_what_it_is_for_and_not_by_its_neighbours() -> None:
    images = np.random.default_rng(0).integers(0, 256, (30, 3, 32, 32), np.uint8)
    change, indices = ShiftAndFlip(4, flip=True), np.arange(30)
    together = change(images, indices, draws(30))
    for place in (0, 11, 29):
        alone = Draws(7, np.array([3]), np.array([place]))
        assert np.array_equal(change(images, indices[place : place + 1], alone)[0], together[place])
    assert not np.array_equal(change(images, indices, draws(30, seed=8)), together)
