"""Copies a data set to a disk of the host, once for all ranks there, so that training reads it from nearby.

A copy is a folder named by the checksum of the manifest. The first process copies; the others wait for
its lock. Every file is compared with its sha256 before it gets its name, and an interrupted copy is continued.
A rank holds the lock, shared, as long as it lives, so that a copy in use is never removed.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Optional

from trainjob.contract import clock
from trainjob.contract.errors import UserError
from trainjob.data.checking import Say, WorkProgress, files_of
from trainjob.data.manifest import FILE_NAME, SOURCE, find, not_prepared
from trainjob.data.shards import Shards, open_data_set
from trainjob.records.checkpoints import sha256_of
from trainjob.records.files import remove_if_there
from trainjob.records.own import make_own_folder, open_own

_CHUNK = 1 << 22
_COPIES = 8  # at once: small files take longer to open than to copy
_BETWEEN_TRIES_S = 0.05
_COMPLETE = ".complete"


class _File(NamedTuple):
    origin: Path
    copy: Path
    bytes: int
    sha256: str
    changed_ns: int  # 0: its time says nothing


class Staged:
    """A copy in use: `data_dir` holds the data set under its own name."""

    def __init__(self, data_dir: Path, lock: int) -> None:
        self.data_dir = data_dir
        self._lock = lock

    def release(self, remove: bool = False) -> None:
        """Stop using the copy; with `remove`, remove it unless another process uses it."""
        try:
            if remove:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_if_there(self.data_dir / _COMPLETE)  # first: what is left of a removal is no copy
                shutil.rmtree(str(self.data_dir), ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(self._lock)


def stage(name: str, data_dir: Optional[Path], disk: Path, say: Say) -> Staged:
    """Return a copy of data set `name` on `disk`, made unless it is there. Raises UserError."""
    folder = find(name, data_dir)
    if folder is None:
        raise not_prepared(name, data_dir)
    data_set = open_data_set(folder)
    target = disk / ("trainjob-%d-%s" % (os.getuid(), data_set.identity()[:16]))
    try:
        make_own_folder(target)
        lock = open_own(disk / (target.name + ".lock"))
        try:
            make_copy(data_set, target, lock, say)
        except BaseException:
            os.close(lock)
            raise
        return Staged(target, lock)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _full(name, disk, str(error)) from None
        if error.errno == errno.ENOENT and not disk.is_dir():
            raise UserError(
                "data set %s can't be staged: there is no folder %s here" % (name, disk),
                "Make it on every host, or give --stage a folder that every host has",
            ) from None
        raise UserError(
            "data set %s can't be staged to %s: %s" % (name, disk, error), "Give --stage a folder that you may write"
        ) from None


def make_copy(data_set: Shards, target: Path, lock: int, say: Say) -> None:
    """Copy, unless it has been done, and return with the lock shared."""
    while True:
        fcntl.flock(lock, fcntl.LOCK_SH)
        if (target / _COMPLETE).exists():
            return
        # No process may wait for the exclusive lock: the one that gets it keeps a shared one as long as it lives. Those
        # that find it taken wait above, until the copy is made.
        fcntl.flock(lock, fcntl.LOCK_UN)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            clock.sleep(_BETWEEN_TRIES_S)
            continue
        if not (target / _COMPLETE).exists():
            _copy(data_set, target, say)


def _copy(data_set: Shards, target: Path, say: Say) -> None:
    make_own_folder(target)  # again: a run that has ended since it was opened may have removed it
    manifest, name = data_set.manifest, data_set.manifest.name
    folder = target / data_set.folder.name
    files = [
        _File(data_set.folder / facts.file, folder / facts.file, facts.bytes, facts.sha256, 0)
        for facts in files_of(manifest)
    ]
    splits = manifest.splits if manifest.root else ()
    for indexed in (file for split in splits for file in data_set.split(split).images.files()):
        origin, copy = Path(manifest.root) / indexed.name, folder / SOURCE / indexed.name
        files.append(_File(origin, copy, indexed.bytes, indexed.sha256, indexed.changed_ns))
    # A copy's name tells that it was compared, but a crash may have cut it since.
    missing = [one for one in files if _size(one.copy) != one.bytes or sha256_of(one.copy) != one.sha256]
    needed = sum(one.bytes - _size(_part(one.copy)) for one in missing)
    free = shutil.disk_usage(str(target)).free
    if needed > free:
        raise _full(name, target.parent, "%s are missing, and it has %s free" % (_shown(needed), _shown(free)))
    total, copied, progress = sum(one.bytes for one in missing), 0, WorkProgress(say)
    for parent in {one.copy.parent for one in missing} | {folder}:
        parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(_COPIES) as pool:
        for one, _ in zip(missing, pool.map(_copy_file, missing)):
            copied += one.bytes
            progress("staging %s: %s of %s" % (name, _shown(copied), _shown(total)))
    shutil.copyfile(str(data_set.folder / FILE_NAME), str(folder / FILE_NAME))
    sync_disk(folder)  # once for all files
    (target / _COMPLETE).touch()
    say("staged %s to %s: %s copied" % (name, target, _shown(total)))


def sync_disk(folder: Path) -> None:
    """Make durable what was written to the disk of `folder`; other disks, and network folders, are not waited for.

    Raises OSError where the disk reports that a write has failed.
    """
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)  # Python has no name for it
    if syncfs is None:
        os.sync()
        return
    descriptor = os.open(str(folder), os.O_RDONLY)
    try:
        if syncfs(descriptor):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(folder))
    finally:
        os.close(descriptor)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0 if path.suffix == ".part" else -1


def _part(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def _copy_file(file: _File) -> None:
    part = _part(file.copy)
    continued = _size(part) > 0
    with open(str(file.origin), "rb") as origin, open(str(part), "ab") as stream:
        origin.seek(stream.tell())
        shutil.copyfileobj(origin, stream, _CHUNK)
    digest = sha256_of(part)
    if digest != file.sha256:
        remove_if_there(part)
        if continued:  # what was left was of another file
            _copy_file(file)
            return
        raise UserError(
            "%s is not what was prepared: sha256 %s, expected %s" % (file.origin, digest, file.sha256),
            "Prepare the data set again, with --again",
        )
    if file.changed_ns:
        os.utime(str(part), ns=(file.changed_ns, file.changed_ns))
    os.replace(str(part), str(file.copy))


def _shown(count: int) -> str:
    return "%.1f GB" % (count / 1e9) if count >= 1e9 else "%.1f MB" % (count / 1e6)


def _full(name: str, disk: Path, reason: str) -> UserError:
    return UserError(
        "data set %s does not fit on %s: %s" % (name, disk, reason),
        "Free some space there (a later start continues the copy), give --stage another disk, or leave out --stage",
        "too-large",
    )
