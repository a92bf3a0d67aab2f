"""The folder of a private Slurm, locked while its owner lives, so that the next call recognizes leftovers."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "trainjob-slurm-"
_LOCK = "lock"


@contextmanager
def new_folder() -> Iterator[Path]:
    """Yield a new folder that others may read and only we write; it is gone afterwards."""
    # Not in the user's cache: a socket's path may have 107 bytes, and the user munge must be able to enter.
    made = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}"))
    folder = made.with_name(made.name[1:])
    try:
        made.chmod(0o755)
        with (made / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # It gets its name only once it is locked.
            made.rename(folder)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers() -> list[Path]:
    """Remove the folders whose owners were killed, and return them. Their processes ended with the owners."""
    left = [folder for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*") if _is_abandoned(folder)]
    for folder in left:
        shutil.rmtree(folder, ignore_errors=True)
    return left


def _is_abandoned(folder: Path) -> bool:
    try:
        with (folder / _LOCK).open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # locked by its owner, or another user's
        return False
    return folder.stat().st_uid == os.getuid()
