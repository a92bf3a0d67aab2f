"""CIFAR-10 from its official python archive: six pickles of 10,000 images each in one tar file.

Reading the pickles executes no code that they bring along.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import tarfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO, Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from trainjob.contract.errors import UserError
from trainjob.contract.paths import with_home
from trainjob.data.checking import Say
from trainjob.data.download import download, is_url
from trainjob.data.manifest import Manifest
from trainjob.data.writing import write_images

# The data set's authors print this beside the archive.
OFFICIAL_MD5 = "c58f30108f718f92721af3b95e74349a"
_HOME = "https://www.cs.toronto.edu/~kriz/cifar.html"
_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_TRAIN = ["data_batch_%d" % number for number in range(1, 6)]
_SPLITS = {"train": _TRAIN, "test": ["test_batch"]}
_WANTED = {*_TRAIN, "test_batch", "batches.meta"}
_CHUNK = 1 << 20
_MOST_BYTES = 1 << 28  # of one batch: an official one has 31 MB


class CifarBatch(NamedTuple):
    """One pickle of the archive."""

    images: np.ndarray  # (n, 3, 32, 32) uint8
    labels: np.ndarray  # (n,) uint8


def fill(folder: Path, say: Say, source: Optional[str] = None, sha256: Optional[str] = None) -> Manifest:
    """Write CIFAR-10 into `folder` from the archive `source`, a file or a URL. Raises UserError."""
    if source is None:
        raise UserError(
            "cifar10 is made from its archive cifar-10-python.tar.gz, and none is given",
            "give --from FILE-or-URL (%s has it)" % _HOME,
        )
    path = folder / "archive.part" if is_url(source) else with_home(source)
    try:
        if is_url(source):
            download(source, path, say)
        try:
            stream = open(str(path), "rb")  # noqa: SIM115 - closed below
        except OSError as error:
            raise UserError(
                "the archive %s can't be read (%s)" % (source, error.strerror),
                "give --from FILE-or-URL (%s has it)" % _HOME,
            ) from None
        with stream:
            digest = _checked(stream, source, sha256)
            return _write(folder, _read(stream, source), digest)
    finally:
        if is_url(source) and path.exists():
            path.unlink()


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


def _read(stream: BinaryIO, source: str) -> Dict[str, object]:
    """Return the archive's pickles by name."""
    pickles: Dict[str, object] = {}
    try:
        with tarfile.open(fileobj=stream, mode="r:*") as archive:
            for member in archive:
                name = member.name.rpartition("/")[2]
                # Links are left out: what they lead to need not be there.
                is_wanted = name in _WANTED and member.isfile() and member.size <= _MOST_BYTES
                content = archive.extractfile(member) if is_wanted else None
                if content is not None:
                    pickles[name] = _unpickled(content.read(), "%s in %s" % (name, source))
    except (tarfile.TarError, EOFError, OSError, ValueError, LookupError, zlib.error) as error:
        raise UserError(
            "%s is not a tar archive that can be read: %s" % (source, error),
            "download it again, or leave --from out and trainjob does",
        ) from None
    missing = sorted(_WANTED - set(pickles))
    if missing:
        raise UserError(
            "%s lacks %s" % (source, ", ".join(missing)),
            "cifar10 is made from the python version, cifar-10-python.tar.gz",
        )
    return pickles


class ForeignPickleError(UserError):
    """A pickle asks for something other than numpy arrays and Python's own values."""

    code = "foreign-pickle"


def _encode(text: str, encoding: str) -> bytes:
    # Python 3 writes bytes this way for Python 2; any other codec could be code.
    if encoding != "latin1":
        raise ForeignPickleError("a pickle encodes text as %s, and only latin1 is how bytes are written" % encoding)
    return text.encode("latin1")


def _reconstruct(kind: object, shape: Tuple[int, ...], code: str) -> np.ndarray:
    # numpy makes every array this way: empty, filled by the state that follows.
    if kind is not np.ndarray or tuple(shape) != (0,):
        raise ForeignPickleError("a pickle makes an array of %s %s, and only plain arrays are read" % (kind, shape))
    array: np.ndarray = np.ndarray.__new__(np.ndarray, shape, code)
    return array


_ADMITTED: Dict[Tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,  # numpy ≥ 2
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        """Return what the pickle names, where it is one of the few. Raises ForeignPickleError."""
        admitted = _ADMITTED.get((module, name))
        if admitted is None:
            raise ForeignPickleError(
                "a pickle asks for %s.%s, and only numpy arrays, numbers, text, lists and dictionaries are read: "
                "loading anything else could run code" % (module, name)
            )
        return admitted


def _unpickled(content: bytes, what: str) -> object:
    """Return the value in a pickle, Python 2's texts as bytes. Raises ForeignPickleError, naming `what` was read."""
    try:
        return _Unpickler(io.BytesIO(content), encoding="bytes").load()
    except ForeignPickleError as error:
        raise ForeignPickleError("%s: %s" % (what, error)) from None
    except Exception as error:  # noqa: BLE001 - damaged pickles fail in many ways
        raise UserError(
            "%s is not a pickle that can be read: %s" % (what, error), "the archive is damaged: download it again"
        ) from None


# -- the data set ------------------------------------------------------------------------------


def _batch(name: str, content: object, classes: int) -> CifarBatch:
    """Return one pickle's images and labels. Raises UserError if it is not of the official form."""
    images = content.get(b"data") if isinstance(content, dict) else None
    labels = content.get(b"labels") if isinstance(content, dict) else None
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[1:] != (_PIXELS,):
        raise UserError("%s has no b'data' of (images, %d) uint8" % (name, _PIXELS), "is it CIFAR-10's python version?")
    if not isinstance(labels, list) or len(labels) != len(images):
        raise UserError("%s has %d images and no b'labels' of as many" % (name, len(images)), "is it CIFAR-10?")
    if not all(isinstance(label, int) and 0 <= label < classes for label in labels):
        raise UserError("%s has labels outside 0 to %d" % (name, classes - 1), "is it CIFAR-10?")
    return CifarBatch(images.reshape((-1, *_SHAPE)), np.array(labels, dtype=np.uint8))


def _write(folder: Path, pickles: Dict[str, object], sha256: str) -> Manifest:
    meta = pickles["batches.meta"]
    classes = len(meta.get(b"label_names", ())) if isinstance(meta, dict) else 0
    batches = {split: [_batch(name, pickles[name], classes) for name in names] for split, names in _SPLITS.items()}
    mean, std = _statistics(batches["train"])
    splits = {}
    for split, of_split in batches.items():
        labels = np.concatenate([batch.labels for batch in of_split])
        splits[split] = write_images(folder, split, (batch.images.tobytes() for batch in of_split), labels)
    return Manifest(
        name="cifar10",
        shape=_SHAPE,
        dtype="uint8",
        label_dtype="uint8",
        classes=classes,
        maximum=255,
        mean=mean,
        std=std,
        splits=splits,
        source="%s, cifar-10-python.tar.gz, sha256 %s" % (_HOME, sha256),
        licence="not stated",
        attribution="A. Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images",
    )


def _statistics(batches: List[CifarBatch]) -> Tuple[Tuple[float, ...], Tuple[float, ...]]:
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
