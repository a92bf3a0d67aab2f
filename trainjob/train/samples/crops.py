"""Images decoded, cut and resized as they are needed: random crops for training, the middle for evaluation.

What is cut follows from (seed, update, place in the global batch), so it is the same for any number of instances and
after resuming. Threads decode and resize, because Pillow and torch let others run meanwhile.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Optional, Tuple, Union

import numpy as np
import torch
from torch.nn import functional

from trainjob.data.encoded import EncodedImages
from trainjob.data.pictures import Box, central_box
from trainjob.records.software import is_older

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trainjob.train.samples.draws import Draws, Indices
    from trainjob.train.samples.nested import Nested
    from trainjob.train.samples.sources import Augment

_TRIES = 10  # as torchvision's RandomResizedCrop; then the middle is taken
_TASKS = 4  # of each thread for one gathering: short ones spread better


class ResizedCrop:
    """A random part of an image, resized to `size` × `size`; with `flip`, half of them are mirrored.

    The part has between `smallest` and all of the image's area, and sides in a ratio between 3 : 4 and 4 : 3. To
    evaluate, the middle is taken: `centre` of the shorter side.
    """

    def __init__(self, size: int, smallest: float = 0.08, flip: bool = True, centre: float = 0.875) -> None:
        self.size, self.smallest, self.flip, self.centre = size, smallest, flip, centre

    def boxes(self, heights: Indices, widths: Indices, draws: Draws) -> Tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return left, top, right and bottom of each image's part (n, 4), and which are mirrored (n,)."""
        boxes = np.array(
            [central_box(*size, (self.size, self.size)) for size in zip(heights.tolist(), widths.tolist())]
        )
        is_open = np.ones(len(heights), bool)
        ratios = np.log((3 / 4, 4 / 3))
        for _ in range(_TRIES):  # all numbers are drawn, so that what follows never depends on how many were needed
            area = heights * widths * (self.smallest + (1 - self.smallest) * draws.floats())
            ratio = np.exp(ratios[0] + (ratios[1] - ratios[0]) * draws.floats())
            across, down = np.rint(np.sqrt(area * ratio)), np.rint(np.sqrt(area / ratio))
            left, top = (
                np.floor(draws.floats() * (widths - across + 1)),
                np.floor(draws.floats() * (heights - down + 1)),
            )
            fits = is_open & (across <= widths) & (down <= heights) & (across > 0) & (down > 0)
            boxes[fits] = np.stack([left, top, left + across, top + down], axis=1)[fits]
            is_open &= ~fits
        mirrored = draws.below(2).astype(bool) if self.flip else np.zeros(len(heights), bool)
        return boxes, mirrored


class RawImages:
    """The images of a split of raw uint8, with the interface of EncodedImages."""

    def __init__(self, images: NDArray[np.uint8]) -> None:
        self.shape: Tuple[int, ...] = images.shape[1:]
        self._images = np.asarray(images)

    def sizes(self, indices: Indices) -> Tuple[Indices, Indices]:
        """Return heights and widths of images `indices` (n,)."""
        return np.full(len(indices), self.shape[1]), np.full(len(indices), self.shape[2])

    def part(self, index: int, box: Box, size: Tuple[int, int], mirrored: bool = False) -> Any:
        """Return the part `box`, to whole pixels, of image `index` as uint8 (channels, *size)."""
        left, top, right, bottom = (round(edge) for edge in box)
        planes = torch.from_numpy(self._images[index, :, top:bottom, left:right].copy())[None]
        if planes.shape[2:] != size:
            try:
                planes = functional.interpolate(planes, size, mode="bilinear", align_corners=False)
            except RuntimeError:  # before torch 2.1, not of bytes
                planes = functional.interpolate(planes.float(), size, mode="bilinear", align_corners=False)
                planes = planes.round_().to(torch.uint8)
        cut = planes[0].numpy()
        return cut[:, :, ::-1] if mirrored else cut


class CropSource:
    """Samples of one split of images, each cut by `ResizedCrop`; with another augmentation, or none, whole images."""

    def __init__(
        self,
        images: Union[EncodedImages, RawImages],
        labels: NDArray[np.generic],
        augment: Union[ResizedCrop, Augment, None],
    ) -> None:
        self._images, self._labels, self._augment = images, np.asarray(labels), augment
        height, width = images.shape[1:]
        self._size = (augment.size, augment.size) if isinstance(augment, ResizedCrop) else (height, width)
        self.sample_bytes: Optional[int] = images.shape[0] * self._size[0] * self._size[1]
        # This instance's share of the host's cores: those it is bound to, or an equal part of all.
        bound, instances = len(os.sched_getaffinity(0)), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        self._threads = max(1, bound // instances if bound == os.cpu_count() else bound)
        self._pool: Optional[ThreadPoolExecutor] = None

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._labels)

    def use_threads(self, count: int) -> None:
        """Decode with `count` threads."""
        self._threads, self._pool = count, None

    def gather(self, indices: Indices, draws: Optional[Draws]) -> Tuple[Nested, Nested]:
        """Return images (n, channels, height, width) uint8 and labels (n,) int64. Raises UserError."""
        boxes, mirrored = self._boxes(indices, draws)
        cut = np.empty((len(indices), self._images.shape[0], *self._size), np.uint8)

        def decode(part: slice) -> None:
            for place in range(part.start, part.stop):
                box = Box(*boxes[place])
                cut[place] = self._images.part(int(indices[place]), box, self._size, bool(mirrored[place]))

        if isinstance(self._images, RawImages) and not resizes_in_one_thread():
            decode(slice(0, len(indices)))
        else:
            self._pool = self._pool or ThreadPoolExecutor(self._threads, "trainjob-decode")
            tasks = self._threads * _TASKS
            edges = [len(indices) * number // tasks for number in range(tasks + 1)]
            list(self._pool.map(decode, (slice(start, end) for start, end in zip(edges, edges[1:]) if end > start)))
        if draws is not None and self._augment is not None and not isinstance(self._augment, ResizedCrop):
            cut = self._augment(cut, np.arange(len(cut)), draws)
        labels = self._labels.take(indices).astype(np.int64)
        return torch.from_numpy(cut), torch.from_numpy(labels)

    def _boxes(self, indices: Indices, draws: Optional[Draws]) -> Tuple[Any, Any]:
        heights, widths = self._images.sizes(indices)
        if isinstance(self._augment, ResizedCrop) and draws is not None:
            return self._augment.boxes(heights, widths, draws)
        share = self._augment.centre if isinstance(self._augment, ResizedCrop) else 1.0
        sizes = zip(heights.tolist(), widths.tolist())
        return [central_box(*size, self._size, share) for size in sizes], np.zeros(len(indices), bool)


def resizes_in_one_thread() -> bool:
    """Return whether torch resizes bytes in the thread that asks for it; otherwise it starts threads of its own."""
    return not is_older(torch.__version__, "2.1") and torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
