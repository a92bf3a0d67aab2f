"""Lists the images of a folder: of folders of files by class, and of WebDataset's tar shards."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from trainjob.contract.errors import UserError
from trainjob.data.pictures import SUFFIXES

# Usual names of each split's folder, or of the beginning of its shards' names.
_SPLITS = {"train": ("train", "training"), "test": ("val", "valid", "validation", "test")}


class ImagePlace(NamedTuple):
    """The position of one image's bytes."""

    file: int  # of the listing's files
    offset: int  # in a table: the row
    bytes: int
    label: int


class Listing(NamedTuple):
    """The images of one split, in a fixed order."""

    files: List[str]  # relative to the root
    places: List[ImagePlace]
    read: Optional[Callable[[ImagePlace], bytes]] = None  # where the bytes are not simply a part of the file


class ListedImages(NamedTuple):
    """The splits of a folder, and the number of classes."""

    splits: Dict[str, Listing]
    classes: int


# -- folders by class --------------------------------------------------------------------------


def image_folder(root: Path) -> ListedImages:
    """Return the images in ROOT/train/CLASS/… and ROOT/val/CLASS/…, or in ROOT/CLASS/…: classes in order of name."""
    folders: Dict[str, Path] = {}
    for split, names in _SPLITS.items():
        found = next((root / name for name in names if (root / name).is_dir()), None)
        if found is not None:
            folders[split] = found
    if "train" not in folders:
        folders = {"train": root}
    classes = _classes(folders["train"])
    if not classes:
        raise UserError(
            "%s has no folders of images" % folders["train"], "give a folder with one folder of images for each class"
        )
    labels = {name: number for number, name in enumerate(classes)}
    splits = {split: _of_folder(root, folder, labels) for split, folder in folders.items()}
    for split, folder in folders.items():
        if not splits[split].files:
            raise UserError("no folder in %s has an image (%s)" % (folder, ", ".join(SUFFIXES)), "correct --from")
    return ListedImages(splits, len(classes))


def _classes(folder: Path) -> List[str]:
    try:
        return sorted(entry.name for entry in os.scandir(str(folder)) if entry.is_dir() and entry.name[0] != ".")
    except OSError as error:
        raise UserError("%s can't be read: %s" % (folder, error.strerror), "correct --from") from None


def _of_folder(root: Path, folder: Path, labels: Dict[str, int]) -> Listing:
    files: List[str] = []
    places: List[ImagePlace] = []
    for name in _classes(folder):
        if name not in labels:
            raise UserError(
                "%s has a class %s that the training images lack" % (folder, name), "move or rename that folder"
            )
        for parent, folders, listed in os.walk(str(folder / name)):
            folders.sort()
            for path in [os.path.join(parent, file) for file in sorted(listed) if file.lower().endswith(SUFFIXES)]:
                places.append(ImagePlace(len(files), 0, os.path.getsize(path), labels[name]))
                files.append(os.path.relpath(path, str(root)))
    return Listing(files, places)


# -- tar shards --------------------------------------------------------------------------------


def web_dataset(root: Path) -> ListedImages:
    """Return the images in the tar shards below `root`: a sample is KEY.jpg (or .png …) and KEY.cls, its label."""
    shards: Dict[str, List[str]] = {}
    for path in sorted(root.rglob("*.tar*")) if root.is_dir() else []:
        if path.suffix != ".tar":
            raise UserError("%s is compressed, and shards are read at random" % path, "decompress it")
        shards.setdefault(split_of(path.relative_to(root)), []).append(str(path.relative_to(root)))
    if "train" not in shards:
        raise UserError("%s has no tar shards to train on" % root, "give the folder of the shards, train-000000.tar …")
    splits: Dict[str, Listing] = {}
    for split, files in shards.items():
        places: List[ImagePlace] = []
        for number, file in enumerate(files):
            in_shard = _of_shard(root / file, number)
            if not in_shard:
                raise UserError("shard %s has no images" % (root / file), "remove it, or make it again")
            places += in_shard
        splits[split] = Listing(files, places)
    return ListedImages(splits, 1 + max(place.label for listing in splits.values() for place in listing.places))


def split_of(path: Path) -> str:
    """Return the split that the file `path` belongs to, by its name or that of its folder."""
    words = [part.lower() for part in path.parts]
    return "test" if any(word.startswith(_SPLITS["test"]) for word in words) else "train"


def _of_shard(path: Path, number: int) -> List[ImagePlace]:
    images: Dict[str, Tuple[int, int]] = {}
    labels: Dict[str, int] = {}
    try:
        with tarfile.open(str(path), "r:") as archive:
            for member in archive:
                folder, slash, file = member.name.rpartition("/")
                stem, _, suffix = file.partition(".")
                key = folder + slash + stem
                if not member.isfile():
                    continue
                if "." + suffix.lower() in SUFFIXES:
                    images[key] = member.offset_data, member.size
                elif suffix.lower() == "cls":
                    content = archive.extractfile(member)
                    labels[key] = int(content.read()) if content is not None else -1
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise UserError("shard %s can't be read: %s" % (path, error), "make or fetch it again") from None
    size = path.stat().st_size
    for key in sorted({*images, *labels}):
        if key not in labels or key not in images:
            missing = "an image and no label (.cls)" if key in images else "a label and no image"
            raise UserError("shard %s: sample %s has %s" % (path, key, missing), "make or fetch the shard again")
        if sum(images[key]) > size or labels[key] < 0:
            raise UserError(
                "shard %s: sample %s is cut off, or its label is below 0" % (path, key), "make or fetch the shard again"
            )
    return [ImagePlace(number, *place, labels[key]) for key, place in images.items()]
