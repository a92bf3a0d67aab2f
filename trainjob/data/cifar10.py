"""CIFAR-10 from its official python archive: six pickles of 10,000 images each in one tar file."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO, Dict, List, NamedTuple, Optional

import numpy as np

from trainjob.contract.errors import UserError
from trainjob.data import unpickling
from trainjob.data.download import Say, download, is_url
from trainjob.data.manifest import FileFacts, Manifest, SplitFacts
from trainjob.data.writing import write_array, write_file

# What the data set's authors print beside the archive.
OFFICIAL_MD5 = "c58f30108f718f92721af3b95e74349a"
_HOME = "https://www.cs.toronto.edu/~kriz/cifar.html"
_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_TRAIN = ["data_batch_%d" % number for number in range(1, 6)]
_CHUNK = 1 << 20
_MOST_BYTES = 1 << 28  # of one batch: an official one has 31 MB


class Batch(NamedTuple):
    """One pickle of the archive."""

    images: Any  # (n, 3, 32, 32) uint8
    labels: Any  # (n,) uint8


def fill(folder: Path, source: Optional[str], sha256: Optional[str], say: Say) -> Manifest:
    """Write CIFAR-10 into `folder` from the archive `source`, a file or a URL. Raises UserError."""
    if source is None:
        raise UserError(
            "cifar10 is made from its archive cifar-10-python.tar.gz, and none is given",
            "give --from FILE-or-URL (%s has it)" % _HOME,
        )
    if not is_url(source):
        return _from_file(folder, Path(source).expanduser(), source, sha256)
    part = folder / "archive.part"
    try:
        download(source, part, say)
        return _from_file(folder, part, source, sha256)
    finally:
        if part.exists():
            part.unlink()


def _from_file(folder: Path, path: Path, source: str, sha256: Optional[str]) -> Manifest:
    with _opened(path, source) as stream:
        digest = _checked(stream, source, sha256)
        return _write(folder, _read(stream, source), digest)


def _opened(path: Path, source: str) -> BinaryIO:
    try:
        return open(str(path), "rb")
    except OSError as error:
        raise UserError(
            "the archive %s can't be read (%s)" % (source, error.strerror),
            "give --from FILE-or-URL (%s has it)" % _HOME,
        ) from None


# -- the archive -------------------------------------------------------------------------------


def _checked(stream: BinaryIO, source: str, expected: Optional[str]) -> str:
    """Return the archive's SHA-256. Raises UserError if it is not the one expected, or not the official file."""
    md5 = hashlib.md5()  # noqa: S324 - what the authors publish; the archive is read without trusting it
    sha256 = hashlib.sha256()
    for chunk in iter(lambda: stream.read(_CHUNK), b""):
        md5.update(chunk)
        sha256.update(chunk)
    stream.seek(0)
    if expected is None and md5.hexdigest() != OFFICIAL_MD5:
        raise UserError(
            "%s is not the official archive: its md5 is %s, the official one's %s"
            % (source, md5.hexdigest(), OFFICIAL_MD5),
            "Fetch it again, or, if you mean this one, give --sha256 %s" % sha256.hexdigest(),
        )
    if expected is not None and sha256.hexdigest() != expected.lower():
        raise UserError(
            "%s is not the expected archive: its sha256 is %s, expected %s" % (source, sha256.hexdigest(), expected),
            "Fetch it again, or correct --sha256",
        )
    return sha256.hexdigest()


def _read(stream: BinaryIO, source: str) -> Dict[str, Any]:
    """Return the archive's pickles by name."""
    wanted = {*_TRAIN, "test_batch", "batches.meta"}
    pickles: Dict[str, Any] = {}
    try:
        with tarfile.open(fileobj=stream, mode="r:*") as archive:
            for member in archive:
                name = member.name.rpartition("/")[2]
                # Links are left out: what they lead to need not be there.
                is_wanted = name in wanted and member.isfile() and member.size <= _MOST_BYTES
                content = archive.extractfile(member) if is_wanted else None
                if content is not None:
                    pickles[name] = unpickling.load(io.BytesIO(content.read()), "%s in %s" % (name, source))
    except (tarfile.TarError, EOFError, OSError, ValueError, LookupError, zlib.error) as error:
        raise UserError(
            "%s is not a tar archive that can be read: %s" % (source, error),
            "download it again, or leave --from out and trainjob does",
        ) from None
    missing = sorted(wanted - set(pickles))
    if missing:
        raise UserError(
            "%s lacks %s" % (source, ", ".join(missing)),
            "cifar10 is made from the python version, cifar-10-python.tar.gz",
        )
    return pickles


def _batch(name: str, content: Any, classes: int) -> Batch:
    """Return one pickle's images and labels. Raises UserError if it is not of the official form."""
    images = content.get(b"data") if isinstance(content, dict) else None
    labels = content.get(b"labels") if isinstance(content, dict) else None
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[1:] != (_PIXELS,):
        raise UserError("%s has no b'data' of (images, %d) uint8" % (name, _PIXELS), "is it CIFAR-10's python version?")
    if not isinstance(labels, list) or len(labels) != len(images):
        raise UserError("%s has %d images and no b'labels' of as many" % (name, len(images)), "is it CIFAR-10?")
    if not all(isinstance(label, int) and 0 <= label < classes for label in labels):
        raise UserError("%s has labels outside 0 to %d" % (name, classes - 1), "is it CIFAR-10?")
    return Batch(images.reshape((-1, *_SHAPE)), np.array(labels, dtype=np.uint8))


# -- the data set ------------------------------------------------------------------------------


def _write(folder: Path, pickles: Dict[str, Any], sha256: str) -> Manifest:
    meta = pickles["batches.meta"]
    classes = len(meta.get(b"label_names", ())) if isinstance(meta, dict) else 0
    train = [_batch(name, pickles[name], classes) for name in _TRAIN]
    mean, std = _statistics(train)
    return Manifest(
        name="cifar10",
        shape=_SHAPE,
        dtype="uint8",
        label_dtype="uint8",
        classes=classes,
        maximum=255,
        mean=mean,
        std=std,
        splits={
            "train": _split(folder, "train", train),
            "test": _split(folder, "test", [_batch("test_batch", pickles["test_batch"], classes)]),
        },
        source="%s, cifar-10-python.tar.gz, sha256 %s" % (_HOME, sha256),
        licence="not stated",
        attribution="A. Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images",
    )


def _statistics(batches: List[Batch]) -> Any:
    """Return mean and standard deviation of each channel, from counts of its values: no rounding adds up."""
    counts = np.zeros((3, 256))
    for batch in batches:
        for channel in range(3):
            counts[channel] += np.bincount(batch.images[:, channel].reshape(-1), minlength=256)
    values = np.arange(256) / 255
    shares = counts / counts.sum(axis=1, keepdims=True)
    mean = (shares * values).sum(axis=1)
    std = np.sqrt((shares * (values - mean[:, None]) ** 2).sum(axis=1))
    return tuple(round(float(value), 4) for value in mean), tuple(round(float(value), 4) for value in std)


def _split(folder: Path, name: str, batches: List[Batch]) -> SplitFacts:
    images = write_file(folder / (name + "-images.bin"), (batch.images.tobytes() for batch in batches))
    labels = write_array(folder / (name + "-labels.bin"), np.concatenate([batch.labels for batch in batches]))
    files: Dict[str, FileFacts] = {"images": images, "labels": labels}
    return SplitFacts(samples=sum(len(batch.labels) for batch in batches), files=files)
