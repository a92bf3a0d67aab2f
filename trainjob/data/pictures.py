"""Encoded images (JPEG, PNG and all others that Pillow reads): decoded, cut and resized to uint8 arrays."""

from __future__ import annotations

import io
import math
import sys
from typing import Any, NamedTuple, Tuple

import numpy as np

from trainjob.contract.errors import UserError

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".ppm", ".tif", ".tiff")


class Box(NamedTuple):
    """A part of an image, in pixels, which need not be whole."""

    left: float
    top: float
    right: float
    bottom: float


class DamagedImageError(Exception):
    """An image can't be decoded, in Pillow's words."""


def pillow() -> Any:
    """Return Pillow's module Image. Raises UserError if Pillow is not installed."""
    try:
        from PIL import Image
    except ImportError:
        raise UserError(
            "encoded images are decoded by Pillow, which %s does not have" % sys.executable,
            "%s -m pip install Pillow" % sys.executable,
        ) from None
    return Image


def central_box(height: int, width: int, size: Tuple[int, int], share: float = 1.0) -> Box:
    """Return the largest box in the middle that has the proportions of `size` (height, width), its sides × `share`."""
    scale = share * min(height / size[0], width / size[1])
    left, top = (width - size[1] * scale) / 2, (height - size[0] * scale) / 2
    return Box(left, top, left + size[1] * scale, top + size[0] * scale)


def examine(content: bytes) -> Tuple[int, int]:
    """Return height and width of an image after decoding all of it, coarsely. Raises DamagedImageError."""
    image = _opened(content)
    width, height = image.size
    try:
        image.draft(None, (1, 1))
        image.load()
    except Exception as error:  # noqa: BLE001 - a damaged file makes Pillow fail in many ways
        raise DamagedImageError(str(error)) from None
    return height, width


def header_size(content: bytes) -> Tuple[int, int]:
    """Return height and width of an image from its header alone. Raises DamagedImageError."""
    width, height = _opened(content).size
    return height, width


def _opened(content: bytes) -> Any:
    module = pillow()
    try:
        return module.open(io.BytesIO(content))
    except Exception as error:  # noqa: BLE001 - likewise
        raise DamagedImageError(str(error).partition(" <")[0]) from None


def decode(content: bytes, box: Box, shape: Tuple[int, ...], mirrored: bool = False) -> np.ndarray:
    """Return the part `box` of an image as uint8 of `shape`: channels (1 or 3), height, width.

    Raises DamagedImageError. A JPEG much larger than needed is decoded at a half, a quarter or an eighth of its size.
    """
    image = _opened(content)
    channels, height, width = shape
    full, mode = image.size, "RGB" if channels == 3 else "L"
    try:
        if image.format == "JPEG":
            needed = (full[0] * width / (box.right - box.left), full[1] * height / (box.bottom - box.top))
            color = "L" if channels == 1 and image.mode != "CMYK" else None
            image.draft(color, tuple(math.ceil(side) for side in needed))
        # Pixels of these modes can be averaged; the image is converted to `mode` once it is small.
        if image.mode.startswith("I"):  # 16 bits a pixel
            image = pillow().fromarray((np.asarray(image) >> 8).astype(np.uint8))
        elif image.mode not in ("RGB", "L", "CMYK"):
            image = image.convert(mode)
        across, down = image.size[0] / full[0], image.size[1] / full[1]
        inside = (
            max(0.0, box.left * across),
            max(0.0, box.top * down),
            min(float(image.size[0]), box.right * across),
            min(float(image.size[1]), box.bottom * down),
        )
        image = image.resize((width, height), pillow().Resampling.BILINEAR, box=inside)
        if mirrored:
            image = image.transpose(pillow().Transpose.FLIP_LEFT_RIGHT)
        pixels = np.asarray(image if image.mode == mode else image.convert(mode))
    except Exception as error:  # noqa: BLE001 - a damaged file makes Pillow fail in many ways
        raise DamagedImageError(str(error)) from None
    return pixels.transpose(2, 0, 1) if channels == 3 else pixels[None]
