"""Shifts and flips whole batches of uint8 images, taken straight from the memory map.

Shifting an image moves every pixel by the same number of bytes. So a shifted image is one run of bytes of the map that
starts a little earlier or later, with the pixels of neighbouring rows or images masked to zero. A flipped row is its
8-byte words in reverse order, each with its bytes swapped. Both are as fast as copying, need no second copy of the data
set, and give bit for bit the same as padding, cutting and flipping each image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterator, Tuple

import numpy as np

from trainjob.train.samples.draws import Draws

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trainjob.train.samples.draws import Indices

    Images = NDArray[np.uint8]

# How much is processed at once: it stays in the caches, and below the 128 KiB from which malloc maps new pages for
# every array, which cost more than copying into them.
_CHUNK_BYTES = 120 * 1024
_WORD = np.dtype(np.uint64)


class ShiftAndFlip:
    """Moves every image by up to `most` pixels each way, filling with zeros; with `flip`, mirrors half of them."""

    def __init__(self, most: int, flip: bool = False) -> None:
        self.most = most
        self.flip = flip
        self._masks: Dict[Tuple[int, int], Images] = {}  # by height and width

    def __call__(self, images: Images, indices: Indices, draws: Draws) -> Images:
        """Return images `indices` (n,) of `images` (samples, channels, height, width) uint8, each changed."""
        size = 2 * self.most + 1
        down, right = draws.below(size), draws.below(size)
        changed = np.empty((len(indices), *images.shape[1:]), np.uint8)
        self._shift(images, indices, down, right, changed)
        if self.flip:
            mirror(changed, np.flatnonzero(draws.below(2)))
        return changed

    def _shift(self, images: Images, indices: Indices, down: Indices, right: Indices, changed: Images) -> None:
        """Write images `indices` to `changed`, as if cut from row `down` and column `right` of their padded selves."""
        height, width = images.shape[2:]
        bytes_of_one = images[:1].nbytes
        starts = indices * bytes_of_one + (down - self.most) * width + (right - self.most)
        last = images.nbytes - bytes_of_one
        within = np.clip(starts, 0, last)
        # Every run of bytes as long as an image; as_strided takes longer than a small batch.
        runs: Images = np.ndarray((last + 1, bytes_of_one), np.uint8, images, strides=(1, 1))
        masks, places = self._mask(height, width), down * (2 * self.most + 1) + right
        by_channel = changed.reshape(len(changed), -1, height * width)
        for part in _parts(len(indices), bytes_of_one):
            cut_out, masked = runs[within[part]], by_channel[part]
            mask = masks.take(places[part], axis=0)[:, None]
            np.bitwise_and(cut_out.reshape(masked.shape), mask, out=masked)
        # The first and the last image have no neighbour on one side.
        for place in np.flatnonzero(within != starts):
            changed[place] = cut(images[indices[place]], self.most, down[place], right[place])

    def _mask(self, height: int, width: int) -> Images:
        """Return 255 for pixels of a shifted image that are its own, else 0: (places, height × width)."""
        if (height, width) not in self._masks:
            places = range(2 * self.most + 1)
            whole = np.full((1, height, width), 255, np.uint8)
            masks = [cut(whole, self.most, down, right) for down in places for right in places]
            self._masks[height, width] = np.stack(masks).reshape(len(masks), height * width)
        return self._masks[height, width]


def cut(image: Images, most: int, down: int, right: int) -> Images:
    """Return the window at row `down`, column `right` of one image (channels, height, width) padded by `most` zeros."""
    height, width = image.shape[1:]
    padded = np.pad(image, ((0, 0), (most, most), (most, most)))
    return padded[:, down : down + height, right : right + width]


def mirror(images: Images, chosen: Indices) -> None:
    """Mirror images `chosen` of the contiguous `images` (n, channels, height, width) left to right, in place."""
    count, remainder = divmod(images.shape[3], _WORD.itemsize)
    if remainder:
        images[chosen] = images[chosen][..., ::-1]
        return
    words = images.reshape(len(images), -1).view(_WORD)  # (n, words of an image)
    for part in _parts(len(chosen), images[:1].nbytes):
        before = words.take(chosen[part], axis=0)
        after = np.empty_like(before)
        rows, swapped = after.reshape(-1, count), before.view(_WORD.newbyteorder()).reshape(-1, count)
        for column in range(count):
            rows[:, column] = swapped[:, count - 1 - column]
        words[chosen[part]] = after


def _parts(samples: int, bytes_of_one: int) -> Iterator[slice]:
    step = max(1, _CHUNK_BYTES // bytes_of_one)
    return (slice(start, start + step) for start in range(0, samples, step))
