"""A small CIFAR-10 archive in the official form: pickles as Python 2 wrote them, in a folder of a gzipped tar file."""

from __future__ import annotations

import hashlib
import io
import struct
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
TRAIN = [f"data_batch_{number}" for number in range(1, 6)]


class Batch(NamedTuple):
    pixels: np.ndarray  # (n, 3072) uint8
    labels: list[int]


def make_batches(samples: int = 20) -> dict[str, Batch]:
    random = np.random.default_rng(11)
    names = [*TRAIN, "test_batch"]
    return {
        name: Batch(random.integers(0, 256, (samples, 3072), np.uint8), random.integers(0, 10, samples).tolist())
        for name in names
    }


def write_archive(path: Path, batches: dict[str, Batch], **instead: bytes) -> Path:
    """Write `batches` as the official archive lies; `instead` gives the bytes of some pickles."""
    members = {name: pickled_batch(name, batch) for name, batch in batches.items()}
    members["batches.meta"] = pickle(mapping(num_cases_per_batch=number(10000), label_names=texts(NAMES)))
    with tarfile.open(path, "w:gz") as archive:
        add(archive, "cifar-10-batches-py/readme.html", b"<p>")
        for name, content in {**members, **instead}.items():
            add(archive, f"cifar-10-batches-py/{name}", content)
    return path


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def pickled_batch(name: str, batch: Batch) -> bytes:
    return pickle(
        mapping(
            batch_label=text(f"batch {name}"),
            labels=listing(number(label) for label in batch.labels),
            data=array(batch.pixels),
            filenames=texts(f"{index}.png" for index in range(len(batch.labels))),
        )
    )


# -- opcodes of Python 2's pickle, protocol 2 --------------------------------------------------


def pickle(value: bytes) -> bytes:
    return b"\x80\x02" + value + b"."


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return b"U" + bytes([len(raw)]) + raw if len(raw) < 256 else b"T" + struct.pack("<i", len(raw)) + raw


def number(value: int) -> bytes:
    return b"K" + bytes([value]) if value < 256 else b"J" + struct.pack("<i", value)


def listing(items: Any) -> bytes:
    return b"](" + b"".join(items) + b"e"


def texts(values: Any) -> bytes:
    return listing(text(value) for value in values)


def mapping(**items: bytes) -> bytes:
    return b"}(" + b"".join(text(name) + value for name, value in items.items()) + b"u"


def array(values: np.ndarray) -> bytes:
    kind = b"cnumpy\ndtype\n(" + text("u1") + number(0) + number(1) + b"tR"
    kind += b"(" + number(3) + text("|") + b"NNN" + b"J" + struct.pack("<i", -1) + b"J" + struct.pack("<i", -1)
    kind += number(0) + b"tb"
    made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(" + number(0) + b"t" + text("b") + b"tR"
    shape = b"(" + b"".join(number(size) for size in values.shape) + b"t"
    return made + b"(" + number(1) + shape + kind + b"\x89" + text(values.tobytes()) + b"tb"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
