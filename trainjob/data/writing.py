"""Writing a data set so that its folder is whole or absent, however many processes try at once."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Iterable

from trainjob.data.manifest import FILE_NAME, FileFacts, Manifest, SplitFacts
from trainjob.records.checkpoints import write_durably
from trainjob.records.files import only_owner_writes, sync_folder

if TYPE_CHECKING:
    import numpy as np

# Fills a staging folder with the data set's files and returns what the manifest says of them.
Fill = Callable[[Path], Manifest]


@only_owner_writes()
def write_data_set(folder: Path, fill: Fill, replace: bool = False) -> None:
    """Make the data set `folder` by `fill`: written beside, fsynced, moved; `replace` one that is there.

    Where another process has moved its own there first, that one stays: both were made from the same facts.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    remove_left_behind(folder)
    staging, old = _beside(folder, "new"), _beside(folder, "old")
    staging.mkdir()
    try:
        manifest = fill(staging)
        write_file(staging / FILE_NAME, [manifest.to_json().encode()])
        sync_folder(staging)
        if replace:
            with contextlib.suppress(FileNotFoundError):
                os.rename(str(folder), str(old))  # a run that has mapped its files keeps them
        try:
            os.rename(str(staging), str(folder))
        except OSError as error:
            with contextlib.suppress(OSError):
                os.rename(str(old), str(folder))
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(str(staging), ignore_errors=True)
        shutil.rmtree(str(old), ignore_errors=True)


def _beside(folder: Path, what: str) -> Path:
    return folder.with_name(".%s.%s.%s.%d.part" % (folder.name, socket.gethostname(), what, os.getpid()))


def write_file(path: Path, chunks: Iterable[bytes]) -> FileFacts:
    """Write `chunks` to `path`, durably, and return its size and checksum."""
    return FileFacts(path.name, *write_durably(path, chunks))


def write_array(path: Path, array: np.ndarray) -> FileFacts:
    """Write the samples of `array` one after the other, without a header."""
    return write_file(path, [array.tobytes()])


def write_images(folder: Path, split: str, images: Iterable[bytes], labels: np.ndarray) -> SplitFacts:
    """Write a split of raw images with their labels."""
    files = {"images": write_file(folder / (split + "-images.bin"), images)}
    files["labels"] = write_array(folder / (split + "-labels.bin"), labels)
    return SplitFacts(samples=len(labels), files=files)


def remove_left_behind(folder: Path) -> None:
    """Remove what processes of this host that are gone left beside `folder`."""
    for staging in folder.parent.glob(".%s.%s.*.part" % (folder.name, socket.gethostname())):
        process = staging.name.split(".")[-2]
        if process.isdigit():
            try:
                os.kill(int(process), 0)
            except ProcessLookupError:
                shutil.rmtree(str(staging), ignore_errors=True)
            except PermissionError:
                continue  # it lives, and is another user's
