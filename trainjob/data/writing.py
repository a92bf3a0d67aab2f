"""Writing a data set so that its folder is whole or absent, however many processes try at once."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import socket
from pathlib import Path
from typing import Any, Callable, Iterable

from trainjob.data.manifest import FILE_NAME, FileFacts, Manifest
from trainjob.records.files import sync_folder

# Fills a staging folder with the data set's files and returns what the manifest says of them.
Fill = Callable[[Path], Manifest]


def write_data_set(folder: Path, fill: Fill, replace: bool = False) -> None:
    """Make the data set `folder` by `fill`: written beside, fsynced, moved; `replace` one that is there.

    Where another process has moved its own there first, that one stays: both were made from the same facts.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    remove_left_behind(folder)
    staging = _beside(folder, "new")
    staging.mkdir()
    try:
        manifest = fill(staging)
        write_file(staging / FILE_NAME, [manifest.to_json().encode()])
        sync_folder(staging)
        if replace:
            _replace(folder, staging)
        else:
            _move(staging, folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(str(staging), ignore_errors=True)
        shutil.rmtree(str(_beside(folder, "old")), ignore_errors=True)


def _beside(folder: Path, what: str) -> Path:
    return folder.with_name(".%s.%s.%s.%d.part" % (folder.name, socket.gethostname(), what, os.getpid()))


def _replace(folder: Path, staging: Path) -> None:
    """Put `staging` in the place of `folder`, or leave that as it was; a run that has mapped its files keeps them."""
    old = _beside(folder, "old")
    with contextlib.suppress(FileNotFoundError):
        os.rename(str(folder), str(old))
    try:
        _move(staging, folder)
    except OSError:
        with contextlib.suppress(OSError):
            os.rename(str(old), str(folder))
        raise


def _move(staging: Path, folder: Path) -> None:
    try:
        os.rename(str(staging), str(folder))
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def write_file(path: Path, chunks: Iterable[bytes]) -> FileFacts:
    """Write `chunks` to `path`, durably, and return its size and checksum."""
    digest, size = hashlib.sha256(), 0
    with open(str(path), "wb") as stream:
        for chunk in chunks:
            digest.update(chunk)
            size += stream.write(chunk)
        stream.flush()
        os.fsync(stream.fileno())
    return FileFacts(file=path.name, bytes=size, sha256=digest.hexdigest())


def write_array(path: Path, array: Any) -> FileFacts:
    """Write the samples of numpy's `array` one after the other, without a header."""
    return write_file(path, [array.tobytes()])


def remove_left_behind(folder: Path) -> None:
    """Remove what processes of this host that are gone left beside `folder`."""
    for staging in folder.parent.glob(".%s.%s.*.part" % (folder.name, socket.gethostname())):
        process = staging.name.split(".")[-2]
        if process.isdigit() and not _is_alive(int(process)):
            shutil.rmtree(str(staging), ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
