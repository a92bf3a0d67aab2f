"""What is this user's own in a folder where everybody may write, such as /tmp: looked at before it is used.

Another user may have put a link, a pipe or a file of theirs under a name of ours. None of them is followed, waited for
or locked.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


class NotOwnError(PermissionError):
    """What has the name is another user's, or neither a file nor a folder."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EPERM, "it belongs to another user, or is not what it should be", str(path))


def make_own_folder(folder: Path) -> None:
    """Make `folder`, which no other user may enter, unless it exists. Raises OSError, such as NotOwnError."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if not is_own_folder(folder):
        raise NotOwnError(folder)


def is_own_folder(folder: Path) -> bool:
    """Return whether `folder` is one, no link, and this user's."""
    try:
        facts = os.lstat(str(folder))
    except OSError:
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid()


class PassedOverWarning(UserWarning):
    """What another user has put into a folder where everybody may write is not used."""


def put_by_another(path: Path) -> bool:
    """Return whether a user other than this one and root has put `path` into a folder where everybody may write.

    Warns of one that was, because its caller passes it over.
    """
    try:
        folder, facts = os.stat(str(path.parent)), os.lstat(str(path))
    except OSError:
        return False
    if facts.st_uid in (0, os.getuid()) or not folder.st_mode & stat.S_IWOTH:
        return False
    import shlex
    import warnings

    place = os.path.abspath(str(path))
    text = (
        "%s is passed over: user %d has put it where everybody may write. If you trust that user, copy it into a "
        "folder of your own, or let the owner of its folder take that right from others: chmod o-w %s"
        % (place, facts.st_uid, shlex.quote(os.path.dirname(place)))
    )
    warnings.warn(text, PassedOverWarning, stacklevel=2)
    return True


def open_own(path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
    """Open this user's regular file `path`, for a lock. Raises OSError, such as NotOwnError."""
    descriptor = os.open(str(path), flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    facts = os.fstat(descriptor)
    if stat.S_ISREG(facts.st_mode) and facts.st_uid == os.getuid():
        return descriptor
    os.close(descriptor)
    raise NotOwnError(path)
