"""Made-up images of any size: every class a pattern of its own under noise, so that a model can learn them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Iterator, NamedTuple, Tuple

import numpy as np

from trainjob.contract.manifest import FileFacts, Manifest, SplitFacts
from trainjob.data.writing import write_array, write_file

_CHUNK = 4096  # samples made at once: 12 MB of 32 × 32 colour images


class Sizes(NamedTuple):
    """How much to make."""

    samples: int = 8192
    held_out: int = 2048
    shape: Tuple[int, int, int] = (3, 32, 32)
    classes: int = 10
    seed: int = 0


def fill(folder: Path, sizes: Sizes) -> Manifest:
    """Write the files of a synthetic data set into `folder` and return its manifest."""
    splits = {
        "train": _split(folder, "train", sizes.samples, sizes, 1),
        "test": _split(folder, "test", sizes.held_out, sizes, 2),
    }
    channels = sizes.shape[0]
    return Manifest(
        name="synthetic",
        shape=sizes.shape,
        dtype="uint8",
        label_dtype="uint16",
        classes=sizes.classes,
        maximum=255,
        mean=(0.5,) * channels,
        std=(0.25,) * channels,
        splits=splits,
        source="made by trainjob data prepare synthetic: %s" % (sizes,),
        licence="CC0-1.0",
        attribution="none needed",
    )


def _split(folder: Path, name: str, samples: int, sizes: Sizes, stream: int) -> SplitFacts:
    patterns = _random(sizes.seed, 0).integers(0, 256, (sizes.classes,) + tuple(sizes.shape), dtype=np.int16)
    labels = _random(sizes.seed, stream).integers(0, sizes.classes, samples, dtype=np.uint16)
    noise = _random(sizes.seed, stream + 16)
    images = write_file(folder / (name + "-images.bin"), _chunks(patterns, labels, noise))
    files: Dict[str, FileFacts] = {"images": images, "labels": write_array(folder / (name + "-labels.bin"), labels)}
    return SplitFacts(samples=samples, files=files)


def _chunks(patterns: Any, labels: Any, noise: Any) -> Iterator[bytes]:
    for start in range(0, len(labels), _CHUNK):
        chosen = patterns[labels[start : start + _CHUNK]]  # (chunk, channels, height, width)
        mixed = (chosen + noise.integers(0, 256, chosen.shape, dtype=np.int16)) // 2
        yield mixed.astype(np.uint8).tobytes()


def _random(seed: int, stream: int) -> Any:
    return np.random.Generator(np.random.PCG64([seed, stream]))
