"""Prints how many images a second one process decodes, crops and flips, beside torchvision's pipeline on these cores.

`python benchmarks/images.py [FOLDER]`: FOLDER has images by class; without one, JPEGs of 500 × 375, as noisy as
photographs, are made. The pipelines take turns; only the ratios, taken within one turn, mean something elsewhere. On a
busy machine the ratio of processor time, with that of worker processes, says more than that of images a second. Where
torchvision can't be imported, its ImageFolder, RandomResizedCrop, RandomHorizontalFlip, ToTensor and Normalize are
written here with the same calls to PIL and torch. Theirs ends with normalised floats, ours with uint8, which the device
normalises; a further line normalises ours on the same cores.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

from trainjob.data.prepare import prepare
from trainjob.train.samples.arithmetic import Arithmetic
from trainjob.train.samples.batches import blocks
from trainjob.train.samples.crops import ResizedCrop
from trainjob.train.tasks.base import DataPlace, TaskData
from trainjob.train.tasks.images import image_data

IMAGES, BATCH, SIZE, TURNS = 512, 32, 224, 3
DECLARED: list[Any] = []  # they last as long as what declares them
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Rate(NamedTuple):
    """The times of one turn of a pipeline."""

    per_s: float  # images, once the first batch is there: starting workers and threads is left out
    per_cpu_s: float  # images, start included


def main() -> None:
    """Measure, and print one line a figure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path)
    with tempfile.TemporaryDirectory() as scratch:
        data_dir = Path(scratch)
        folder = parser.parse_args().folder or made_up(data_dir / "jpeg")
        pipelines = all_pipelines(folder, data_dir)
        turns: dict[str, list[Rate]] = {name: [] for name in pipelines}
        for _ in range(TURNS):
            for name, pipeline in pipelines.items():
                turns[name].append(rate(pipeline))
    theirs = next(iter(turns))
    cores = len(os.sched_getaffinity(0))
    print(f"{IMAGES} JPEGs to {SIZE} x {SIZE}, batch {BATCH}, {cores} cores: median of {TURNS} turns")
    print(f"{'':<48}{'images/s':>10}{'ratio':>8}{'of CPU time':>14}")
    for name, rates in turns.items():
        both = list(zip(rates, turns[theirs], strict=True))
        ratio = statistics.median(one.per_s / other.per_s for one, other in both)
        cpu_ratio = statistics.median(one.per_cpu_s / other.per_cpu_s for one, other in both)
        print(f"{name:<48}{statistics.median(one.per_s for one in rates):>10,.0f}{ratio:>8.2f}{cpu_ratio:>14.2f}")
    print("targets: 1.3 from JPEG, 10 from prepared uint8")


def made_up(folder: Path) -> Path:
    random = np.random.default_rng(0)
    for number in range(IMAGES):
        coarse = Image.fromarray(random.integers(0, 256, (12, 16, 3), dtype=np.uint8))
        pixels = np.asarray(coarse.resize((500, 375), Image.Resampling.BICUBIC)) + random.normal(0, 12, (375, 500, 3))
        path = folder / f"class{number % 4}" / f"{number:05d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path, quality=90)
    return folder


def all_pipelines(folder: Path, data_dir: Path) -> dict[str, Callable[[], Iterator[int]]]:
    data = {}
    for store in ("index", "packed", "resized"):
        shape = (3, 256, 256)
        prepare(store, data_dir, kind="imagefolder", source=str(folder), store=store, shape=shape)
        place = DataPlace(store, data_dir, 0, reads_every_byte=False)
        data[store] = image_data(place.data_set(), ResizedCrop(SIZE))
    name, dataset = theirs(folder)
    return {
        name: lambda: from_loader(dataset),
        "ours, JPEG files in place": lambda: ours(data["index"]),
        "ours, JPEG files in place, normalised here": lambda: ours(data["index"], normalised=True),
        "ours, packed JPEG": lambda: ours(data["packed"]),
        "ours, prepared uint8 of 256 x 256": lambda: ours(data["resized"]),
    }


def rate(pipeline: Callable[[], Iterator[int]]) -> Rate:
    cpu_s = cpu_time_s()
    batches = pipeline()
    first = next(batches)
    start, images = time.perf_counter(), 0
    for size in batches:
        images += size
    seconds = time.perf_counter() - start
    return Rate(images / seconds, (first + images) / (cpu_time_s() - cpu_s))


def cpu_time_s() -> float:
    """Return the processor time of this process and of the worker processes that have ended."""
    return sum(os.times()[:4])


def ours(data: TaskData, normalised: bool = False) -> Iterator[int]:
    counts = Arithmetic(len(data.train), BATCH, 1, 1, 1, "drop", 3)
    for block in blocks(data.train, counts, 0, 0, counts.updates_per_epoch):
        if normalised and data.normalise is not None:
            data.normalise(block.inputs, torch.float32)
        yield len(block.inputs)


# -- torchvision's -----------------------------------------------------------------------------


def theirs(folder: Path) -> tuple[str, Any]:
    try:
        vision = importlib.import_module("torchvision")
    except ImportError:
        return "torchvision's pipeline, written out", WrittenOut(folder)
    except RuntimeError:  # its operators, which are not needed, fail to load beside another build of torch
        vision = without_operators()
    datasets, transforms = vision.datasets, vision.transforms
    steps = [transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    steps.append(transforms.Normalize(MEAN, STD))
    return "torchvision", datasets.ImageFolder(str(folder), transforms.Compose(steps))


def without_operators() -> Any:
    """Import torchvision beside names of its operators that do nothing."""
    operators = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    DECLARED.append(operators)
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    return importlib.import_module("torchvision")


class WrittenOut(torch.utils.data.Dataset[Any]):
    """ImageFolder with the transforms of torchvision's own ImageNet example."""

    def __init__(self, folder: Path) -> None:
        classes = sorted(path.name for path in folder.iterdir())
        self.files = [(str(path), classes.index(path.parent.name)) for path in sorted(folder.glob("*/*"))]
        self.mean, self.std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        with open(self.files[index][0], "rb") as stream:
            image = Image.open(stream).convert("RGB")
        left, top, width, height = random_part(*image.size)
        image = image.crop((left, top, left + width, top + height)).resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        if torch.rand(1) < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(image, copy=True)).permute(2, 0, 1).contiguous()
        return pixels.to(torch.float32).div(255).sub_(self.mean).div_(self.std), self.files[index][1]


def random_part(width: int, height: int) -> tuple[int, int, int, int]:
    ratios = torch.log(torch.tensor((3 / 4, 4 / 3)))
    for _ in range(10):
        area = width * height * torch.empty(1).uniform_(0.08, 1.0).item()
        ratio = torch.exp(torch.empty(1).uniform_(float(ratios[0]), float(ratios[1]))).item()
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < across <= width and 0 < down <= height:
            top = int(torch.randint(0, height - down + 1, (1,)).item())
            return int(torch.randint(0, width - across + 1, (1,)).item()), top, across, down
    return 0, 0, width, height


def from_loader(dataset: Any) -> Iterator[int]:
    workers = len(os.sched_getaffinity(0))
    for images, _ in torch.utils.data.DataLoader(dataset, BATCH, shuffle=True, num_workers=workers, drop_last=True):
        yield len(images)


if __name__ == "__main__":
    main()
