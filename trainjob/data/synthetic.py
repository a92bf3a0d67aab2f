"""Made-up images of any size: each class has its own pattern under noise, so that a model can learn them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Dict, Iterator

import numpy as np

from trainjob.data.checking import Say
from trainjob.data.manifest import MADE_UP, Manifest, SplitFacts
from trainjob.data.shards import Split, split_facts
from trainjob.data.sizes import CHUNK, Sizes, check, describe, refuse_what_does_not_fit, refuse_what_memory_cannot_hold
from trainjob.data.writing import write_images

# A split's stream of random numbers; the patterns of the classes have stream 0, a split's noise another still.
_STREAMS = {"train": 1, "test": 2}
_NOISE = 16


def fill(folder: Path, say: Say, **options: Any) -> Manifest:  # noqa: ARG001 - see prepare.Way
    """Write the files of a synthetic data set of these Sizes and return its manifest. Raises UserError."""
    sizes = Sizes(**options)
    refuse_what_does_not_fit(check(sizes), folder)
    splits = {}
    for split in _STREAMS:
        chunks = (chunk.tobytes() for chunk in images(sizes, split))
        splits[split] = write_images(folder, split, chunks, labels(sizes, split))
    return manifest(sizes, splits)


def manifest(sizes: Sizes, splits: Dict[str, SplitFacts]) -> Manifest:
    """Return the manifest of a synthetic data set."""
    channels = sizes.shape[0]
    return Manifest(
        name=MADE_UP,
        shape=sizes.shape,
        dtype="uint8",
        label_dtype="uint16",
        classes=sizes.classes,
        maximum=255,
        mean=(0.5,) * channels,
        std=(0.25,) * channels,
        splits=splits,
        source=describe(sizes),
        licence="CC0-1.0",
        attribution="none needed",
    )


def counts(sizes: Sizes) -> Dict[str, int]:
    """Return the number of samples by split."""
    return {"train": sizes.samples, "test": sizes.held_out}


def labels(sizes: Sizes, split: str) -> np.ndarray:
    """Return the labels of one split: (samples,) uint16."""
    return _random(sizes.seed, _STREAMS[split]).integers(0, sizes.classes, counts(sizes)[split], dtype=np.uint16)


def images(sizes: Sizes, split: str) -> Iterator[np.ndarray]:
    """Yield the images of one split in chunks: (n, channels, height, width) uint8."""
    patterns = _random(sizes.seed, 0).integers(0, 256, (sizes.classes, *sizes.shape), dtype=np.int16)
    noise = _random(sizes.seed, _STREAMS[split] + _NOISE)
    of_samples = labels(sizes, split)
    for start in range(0, len(of_samples), CHUNK):
        chosen = patterns[of_samples[start : start + CHUNK]]
        yield ((chosen + noise.integers(0, 256, chosen.shape, dtype=np.int16)) // 2).astype(np.uint8)


class MadeUp:
    """A synthetic data set in memory: byte for byte what `fill` would write, without a file."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = check(sizes)
        refuse_what_memory_cannot_hold(sizes)
        self.manifest = manifest(sizes, {name: SplitFacts(count, {}) for name, count in counts(sizes).items()})

    def split(self, name: str) -> Split:
        """Return split `name`. Raises UserError if there is none."""
        split_facts(self.manifest, name)
        return Split(np.concatenate(list(images(self._sizes, name))), labels(self._sizes, name))

    def identity(self) -> str:
        """Return a checksum that is equal where the samples are."""
        return hashlib.sha256(self.manifest.to_json().encode()).hexdigest()


def _random(seed: int, stream: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([seed, stream]))
