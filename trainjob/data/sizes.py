"""How much made-up data: checked and described without numpy."""

from __future__ import annotations

from typing import NamedTuple, Tuple

from trainjob.contract.errors import UserError

MOST_CLASSES = 65536  # labels are uint16


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
            "and was asked with samples %d, held-out %d, shape %s, classes %d"
            % (MOST_CLASSES, sizes.samples, sizes.held_out, shape_text(sizes.shape), sizes.classes)
        )
    if sizes.seed < 0:
        raise UserError("the seed of a synthetic data set must be ≥ 0, and is %d" % sizes.seed)
    return sizes


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
        raise UserError("a shape is CHANNELSxHEIGHTxWIDTH, and this is %r: give --shape 3x32x32, say" % text)
    channels, height, width = (int(word) for word in words)
    return channels, height, width
