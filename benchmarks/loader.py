"""Prints how many images a second one process prepares on one core, beside the lessons' pipeline and a bare gather.

`python benchmarks/loader.py`. The pipelines take turns, and each figure is the median of its turns; only the ratios,
taken within one turn, mean something elsewhere. The lessons' pipeline is torchvision's, written with PIL and torch:
crop and flip of each image, to float, normalised, put together by torch's DataLoader. Ours ends as its own does, with
uint8 on the host (order, draws and the background thread included); a line beside it normalises as well.
"""

from __future__ import annotations

import gc
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps

from trainjob.data.prepare import prepare
from trainjob.data.shards import open_by_name
from trainjob.train.samples.arithmetic import Arithmetic
from trainjob.train.samples.batches import blocks
from trainjob.train.samples.draws import Permutation
from trainjob.train.tasks.base import DataPlace
from trainjob.train.tasks.resnets import Cifar10ResNet50

IMAGES = 50_000
BATCH = 512
TURNS = 5
LESSONS_BATCHES = 12  # of a pipeline that takes some fifty times as long
PADDING = 4
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

LESSONS, BARE, OURS = "lessons, 0 workers", "bare gather of whole images", "ours"

Pipeline = Callable[[], Iterator[int]]  # yields the images of each batch


def main() -> None:
    """Measure, and print one line a figure."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="This DataLoader will create 2 worker")  # on one core: as asked
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        prepare("synthetic", folder, samples=IMAGES, held_out=1)
        cold = {f"{name}, cold cache": [cold_rate(folder, name)] * TURNS for name in (BARE, OURS)}
        turns = measure(all_pipelines(folder))
    show({**turns, **cold})


def show(turns: dict[str, list[float]]) -> None:
    print(f"{IMAGES:,} images 3 x 32 x 32, batch {BATCH}, one core: images a second, median of {TURNS} turns")
    print(f"{'':<40}{'images/s':>12}{'÷ lessons':>12}{'÷ bare':>9}")
    for name, rates in turns.items():
        lessons, bare = ratio(rates, turns[LESSONS]), ratio(rates, turns[BARE])
        print(f"{name:<40}{statistics.median(rates):>12,.0f}{lessons:>12.1f}{bare:>9.2f}")
    print("targets for ours: 30 × the lessons' pipeline, 0.2 of a bare gather")


def ratio(rates: list[float], others: list[float]) -> float:
    """Return the median of the ratios within each turn: what else the machine does falls on both."""
    return statistics.median(rate / other for rate, other in zip(rates, others, strict=True))


def measure(pipelines: dict[str, Pipeline]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in pipelines}
    for _ in range(TURNS):
        for name, pipeline in pipelines.items():
            found[name].append(rate(pipeline))
    return found


def rate(pipeline: Pipeline) -> float:
    """Return images a second once the first batch is there: starting workers and threads is left out."""
    batches = pipeline()
    next(batches)
    start, images = time.perf_counter(), 0
    for size in batches:
        images += size
    return images / (time.perf_counter() - start)


def cold_rate(folder: Path, name: str) -> float:
    """Return the rate of one epoch whose images lie on the disk alone; the kernel keeps what anybody has mapped."""
    for path in (folder / "synthetic").iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    found = rate(all_pipelines(folder, copied=False)[name])
    gc.collect()  # unmaps the images
    return found


def all_pipelines(folder: Path, copied: bool = True) -> dict[str, Pipeline]:
    """Return every pipeline by name; the lessons' reads all images when it is made: not where `copied` is false."""
    task = Cifar10ResNet50(shift=PADDING, flip=True)
    data = task.open_data(DataPlace("synthetic", folder, 0, reads_every_byte=False))
    assert data.normalise is not None
    normalise = data.normalise
    train = open_by_name("synthetic", folder).split("train")
    images = np.asarray(train.images)
    lessons = Lessons(images if copied else images[:BATCH], np.asarray(train.labels))
    return {
        LESSONS: lambda: from_loader(lessons, 0),
        "lessons, 2 workers": lambda: from_loader(lessons, 2),
        BARE: lambda: bare_gather(images),
        OURS: lambda: ours(data, lambda inputs: inputs),
        "ours, normalised on this core": lambda: ours(data, lambda inputs: normalise(inputs, torch.float32)),
    }


# -- ours, and the least there can be ----------------------------------------------------------


def ours(data: Any, then: Callable[[Any], Any]) -> Iterator[int]:
    counts = Arithmetic(IMAGES, BATCH, 1, 1, 1, "drop", 3)
    for block in blocks(data.train, counts, 0, 0, counts.updates_per_epoch):
        yield len(then(block.inputs))


def bare_gather(images: Any) -> Iterator[int]:
    order = Permutation(3, 0, IMAGES)(np.arange(IMAGES))
    for start in range(0, IMAGES - BATCH + 1, BATCH):
        yield len(images.take(order[start : start + BATCH], axis=0))


# -- the lessons' ------------------------------------------------------------------------------


class Lessons(torch.utils.data.Dataset[Any]):
    """torchvision's CIFAR10 with RandomCrop, RandomHorizontalFlip, ToTensor and Normalize."""

    def __init__(self, images: Any, labels: Any) -> None:
        self.images = np.ascontiguousarray(images.transpose(0, 2, 3, 1))  # as torchvision keeps them
        self.labels = labels.tolist()
        self.mean, self.std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))

    def __len__(self) -> int:
        return LESSONS_BATCHES * BATCH

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = ImageOps.expand(Image.fromarray(self.images[index]), PADDING)
        left, top = (int(place) for place in torch.randint(0, 2 * PADDING + 1, (2,)))
        image = image.crop((left, top, left + 32, top + 32))
        if torch.rand(1) < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
        return pixels.to(torch.float32).div(255).sub_(self.mean).div_(self.std), self.labels[index]


def from_loader(dataset: Any, workers: int) -> Iterator[int]:
    loader = torch.utils.data.DataLoader(dataset, BATCH, shuffle=True, num_workers=workers, drop_last=True)
    for images, _ in loader:
        yield len(images)


if __name__ == "__main__":
    main()
