"""Data sets of images made from encoded ones: resized to raw uint8, packed as they are, or left where they lie.

Every image is decoded once, by threads, so that a damaged one is named now and not in the middle of a training run.
"""

from __future__ import annotations

import collections
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple, TypeVar, Union

import numpy as np

from trainjob.contract.errors import UserError
from trainjob.data import pictures
from trainjob.data.checking import Say, WorkProgress
from trainjob.data.encoded import SAMPLES, IndexedFile, write_index
from trainjob.data.listing import ImagePlace, ListedImages, Listing, image_folder, web_dataset
from trainjob.data.manifest import ENCODED, IMAGES, Manifest, SplitFacts
from trainjob.data.pictures import DamagedImageError
from trainjob.data.sizes import MOST_CLASSES
from trainjob.data.tables import parquet
from trainjob.data.writing import write_array, write_file
from trainjob.records.checkpoints import sha256_of

LISTERS: Dict[str, Callable[[Path], ListedImages]] = {
    "imagefolder": image_folder,
    "webdataset": web_dataset,
    "parquet": parquet,
}
RESIZED, PACKED, INDEX = STORES = ("resized", "packed", "index")
# Of photographs, as ImageNet's are usually normalised.
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
AT_ONCE = 256  # images in memory
_MOST_NAMED = 10  # damaged files in a message

Made = TypeVar("Made")


class Encoded(NamedTuple):
    """One image as it is read."""

    content: bytes
    label: int
    place: ImagePlace


class ImageSetRequest(NamedTuple):
    """The data set that is to be made."""

    name: str
    kind: str
    origin: str
    source: str
    store: str = RESIZED
    shape: Tuple[int, ...] = (3, 224, 224)
    skip_damaged: bool = False


def fill(staging: Path, say: Say, **options: Any) -> Manifest:
    """Write the data set that a Request of these options asks for. Raises UserError, naming what is damaged."""
    request = ImageSetRequest(**options)
    if request.kind == "parquet" and request.store == INDEX:
        raise UserError(
            "rows of Parquet and Arrow files can't be read at random fast enough, and --store is index",
            "give --store packed, which keeps the images as they are, or resized",
        )
    if request.store not in STORES:
        raise UserError(
            "images are stored resized, packed or as an index, and --store is %s" % request.store,
            "give --store %s" % " or ".join(STORES),
        )
    if request.shape[0] not in (1, 3) or min(request.shape) < 1:
        raise UserError(
            "decoded images have 1 or 3 channels and sides of at least 1 pixel, and --shape is %s"
            % "x".join(map(str, request.shape)),
            "give --shape 3x224x224, say",
        )
    root = Path(request.source)
    listed = LISTERS[request.kind](root)
    pictures.pillow()
    if listed.classes > MOST_CLASSES:
        raise UserError(
            "%s has %d classes, and labels go up to %d" % (root, listed.classes, MOST_CLASSES - 1),
            "prepare a part of the classes",
        )
    return _Filling(staging, say, listed, request).run()


class _Filling:
    def __init__(self, staging: Path, say: Say, listed: ListedImages, request: ImageSetRequest) -> None:
        self._staging, self._say, self._listed, self._request = staging, say, listed, request
        self._root = Path(request.source)
        self._damaged: List[str] = []

    def run(self) -> Manifest:
        """Write every split and return the manifest."""
        splits = {name: self._split(name, listing) for name, listing in self._listed.splits.items()}
        self._tell_damaged()
        request, channels = self._request, self._request.shape[0]
        return Manifest(
            name=request.name,
            shape=request.shape,
            dtype="uint8",
            label_dtype="uint16",
            classes=self._listed.classes,
            maximum=255,
            mean=_MEAN if channels == 3 else (0.5,),
            std=_STD if channels == 3 else (0.25,),
            splits=splits,
            source=request.origin,
            licence="not stated",
            attribution="not stated",
            kind=IMAGES if request.store == RESIZED else ENCODED,
            root=str(self._root) if request.store == INDEX else "",
        )

    def _split(self, split: str, listing: Listing) -> SplitFacts:
        if self._request.store == RESIZED:
            return self._resized(split, listing)
        rows: List[Tuple[int, ...]] = []
        digests: Dict[int, str] = {}
        examined = self._examined(listing, rows, digests)
        if self._request.store == PACKED:
            packed = write_file(self._staging / (split + "-packed.bin"), examined)
            samples = np.array(rows, SAMPLES)
            samples["file"] = 0
            samples["offset"] = np.cumsum(samples["bytes"]) - samples["bytes"]
            file = IndexedFile(packed.file, packed.bytes, 0, packed.sha256)
            index = {**write_index(self._staging, split, samples, [file]), "packed": packed}
        else:
            collections.deque(examined, maxlen=0)
            files = (self._file(name, digests.get(number)) for number, name in enumerate(listing.files))
            index = write_index(self._staging, split, np.array(rows, SAMPLES), files)
        return SplitFacts(len(rows), index)

    def _examined(self, listing: Listing, rows: List[Tuple[int, ...]], digests: Dict[int, str]) -> Iterator[bytes]:
        """Yield the bytes of every sound image, append its row of the index, and note the digest of a whole file."""

        def examine(image: Encoded) -> Tuple[str, Tuple[int, int]]:
            return hashlib.sha256(image.content).hexdigest(), pictures.examine(image.content)

        for image, (digest, (height, width)) in self._each(listing, examine):
            place = image.place
            if place.bytes == len(image.content) and place.offset == 0:
                digests[place.file] = digest
            rows.append((place.file, image.label, place.offset, place.bytes, height, width))
            yield image.content

    def _file(self, name: str, digest: Optional[str]) -> IndexedFile:
        path = self._root / name
        facts = os.stat(str(path))
        # Of a damaged file that was skipped, no sample is read.
        sha256 = sha256_of(path) if digest is None or path.suffix == ".tar" else digest
        return IndexedFile(name, facts.st_size, facts.st_mtime_ns, sha256)

    def _resized(self, split: str, listing: Listing) -> SplitFacts:
        shape = self._request.shape
        labels: List[int] = []

        def resize(image: Encoded) -> np.ndarray:
            height, width = pictures.header_size(image.content)
            box = pictures.central_box(height, width, (shape[1], shape[2]))
            return pictures.decode(image.content, box, shape)

        def written() -> Iterator[bytes]:
            for image, pixels in self._each(listing, resize):
                labels.append(image.label)
                yield pixels.tobytes()

        images = write_file(self._staging / (split + "-images.bin"), written())
        stored = write_array(self._staging / (split + "-labels.bin"), np.array(labels, np.uint16))
        return SplitFacts(len(labels), {"images": images, "labels": stored})

    def _each(self, listing: Listing, work: Callable[[Encoded], Made]) -> Iterator[Tuple[Encoded, Made]]:
        """Yield every sound image with what `work` makes of it, in order; note those that are damaged."""

        def attempt(place: ImagePlace) -> Union[Tuple[Encoded, Made], str]:
            try:
                image = self._read(listing, place)
                return image, work(image)
            except (DamagedImageError, OSError) as error:
                return "%s: %s" % (self._name(listing, place), error)

        count, progress = 0, WorkProgress(self._say)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for start in range(0, len(listing.places), AT_ONCE):
                progress("%d of %d images read" % (start, len(listing.places)))
                for outcome in pool.map(attempt, listing.places[start : start + AT_ONCE]):
                    if isinstance(outcome, str):
                        self._damaged.append(outcome)
                    else:
                        count += 1
                        yield outcome
        if not count:
            raise UserError("no image in %s can be decoded: %s" % (self._root, self._damaged[-1]), "correct --from")

    def _read(self, listing: Listing, place: ImagePlace) -> Encoded:
        if listing.read is not None:
            content = listing.read(place)
            return Encoded(content, place.label, place._replace(bytes=len(content)))
        path = self._root / listing.files[place.file]
        with open(str(path), "rb") as stream:
            stream.seek(place.offset)
            content = stream.read(place.bytes)
        return Encoded(content, place.label, place)

    def _name(self, listing: Listing, place: ImagePlace) -> str:
        path = self._root / listing.files[place.file]
        if listing.read is not None:
            return "%s, row %d" % (path, place.offset)
        return "%s, the image at byte %d" % (path, place.offset) if place.offset else str(path)

    def _tell_damaged(self) -> None:
        if not self._damaged:
            return
        if not self._request.skip_damaged:
            named = "; ".join(self._damaged[:_MOST_NAMED])
            more = "" if len(self._damaged) <= _MOST_NAMED else "; and %d more" % (len(self._damaged) - _MOST_NAMED)
            raise UserError(
                "%d of the images are damaged: %s%s" % (len(self._damaged), named, more),
                "Replace them, or leave them out with --skip-damaged",
                "damaged-images",
            )
        for line in self._damaged:
            self._say("skipped %s" % line)
        self._say("skipped %d damaged images" % len(self._damaged))
