"""Sizes of made-up data, checked and described without numpy."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path
from typing import NamedTuple, Tuple

from trainjob.contract.errors import UserError

MOST_CLASSES = 65536  # labels are uint16
CHUNK = 4096  # samples made at once: 12 MB of 32 × 32 colour images
_LABEL_BYTES = 2
_DRAWN_BYTES = 2  # patterns and noise are int16
_COPIES = 3  # that arithmetic holds at once


class Sizes(NamedTuple):
    """Sizes of a synthetic data set, and the seed it is made from."""

    samples: int = 8192
    held_out: int = 2048
    shape: Tuple[int, int, int] = (3, 32, 32)
    classes: int = 10
    seed: int = 0


def check(sizes: Sizes) -> Sizes:
    """Return `sizes` where such a data set can be made. Raises UserError."""
    if min(sizes.samples, sizes.held_out, *sizes.shape) < 1 or not 1 <= sizes.classes <= MOST_CLASSES:
        raise UserError(
            "a synthetic data set has samples, held-out samples, channels, height and width ≥ 1 and 1 to %d classes, "
            "and the request has samples %d, held-out %d, shape %s, classes %d"
            % (MOST_CLASSES, sizes.samples, sizes.held_out, shape_text(sizes.shape), sizes.classes),
            "correct --samples, --held-out, --shape or --classes",
        )
    if sizes.seed < 0:
        raise UserError("the seed of a synthetic data set must be ≥ 0, and is %d" % sizes.seed, "give --seed 0")
    return sizes


def refuse_what_does_not_fit(sizes: Sizes, folder: Path) -> None:
    """Raise UserError if a data set of these sizes fills the disk of `folder`, or making it fills the memory."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())
    free = shutil.disk_usage(str(there)).free
    _refuse(sizes, "on disk", _stored_bytes(sizes), "the disk of %s has" % folder.parent, free)
    pixels = math.prod(sizes.shape)
    patterns = sizes.classes * pixels * _DRAWN_BYTES
    chunk = min(max(sizes.samples, sizes.held_out), CHUNK) * pixels * _DRAWN_BYTES * _COPIES
    labels = max(sizes.samples, sizes.held_out) * _LABEL_BYTES * _COPIES
    _refuse(sizes, "of memory to make", patterns + chunk + labels, "this machine has", available_memory())


def refuse_what_memory_cannot_hold(sizes: Sizes) -> None:
    """Raise UserError if the images of a data set of these sizes are more than the memory holds."""
    _refuse(sizes, "of memory", _stored_bytes(sizes), "this machine has", available_memory())


def _stored_bytes(sizes: Sizes) -> int:
    return (sizes.samples + sizes.held_out) * (math.prod(sizes.shape) + _LABEL_BYTES)


def _refuse(sizes: Sizes, what: str, needed: int, owner: str, free: int) -> None:
    if needed <= free:
        return
    fitting = free * (sizes.samples + sizes.held_out) // needed - sizes.held_out
    raise UserError(
        "{:,} synthetic samples of shape {} with {:,} classes take {:,.1f} GB {}, and {} {:,.1f} GB free".format(
            sizes.samples + sizes.held_out,
            shape_text(sizes.shape),
            sizes.classes,
            needed / 1e9,
            what,
            owner,
            free / 1e9,
        ),
        "choose at most --samples %d" % fitting if fitting > 0 else "choose a smaller --shape, or fewer samples",
        "too-large",
    )


def available_memory() -> int:
    """Return the bytes of memory that a program may take now."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def describe(sizes: Sizes) -> str:
    """Return where data of these sizes comes from, as its manifest says it."""
    return "made up: %d and %d held-out images %s of %d classes, seed %d" % (
        sizes.samples,
        sizes.held_out,
        shape_text(sizes.shape),
        sizes.classes,
        sizes.seed,
    )


def shape_text(shape: Tuple[int, ...]) -> str:
    """Return a shape as --shape takes it: 3x32x32."""
    return "x".join(str(size) for size in shape)


def parse_shape(text: str) -> Tuple[int, int, int]:
    """Return channels, height and width in `text`. Raises UserError."""
    words = text.lower().replace("×", "x").split("x")
    if len(words) != 3 or not all(word.strip().isdigit() for word in words):
        raise UserError("a shape is CHANNELSxHEIGHTxWIDTH, and this is %r" % text, "give --shape 3x32x32, say")
    channels, height, width = (int(word) for word in words)
    return channels, height, width
