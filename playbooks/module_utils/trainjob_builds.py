"""Where builds lie, which one is in place, and what is said when one can't be made. Python 3.8, on the hosts."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pwd
import shutil
import uuid

MARKER = ".trainjob-build.json"
_CURES = {
    errno.ENOSPC: "the disk is full: make room there, or choose another path",
    errno.EDQUOT: "the quota is used up: make room there, or choose another path",
    errno.EROFS: "it is mounted read-only: choose another path",
    errno.EACCES: "no permission: choose a path that you may write to, or run with --become",
    errno.EPERM: "no permission: choose a path that you may write to, or run with --become",
}


class BuildError(Exception):
    """What was found, and the cure."""


def explained(error, path):
    """Return what a user needs to know of an OSError under `path`."""
    cure = _CURES.get(error.errno, "choose another path")
    return "%s can't be made: %s (%s): %s" % (path, error.filename or path, error.strerror, cure)


def plain(identity):
    """Return `identity` as JSON gives it back, so that it can be compared with a marker."""
    return json.loads(json.dumps(identity, sort_keys=True))


def shown(identity):
    """Return `identity` as the lines of a difference."""
    return "".join("%s: %s\n" % (name, json.dumps(identity[name])) for name in sorted(identity or {}))


def builds_of(path):
    """Return the folder that holds the builds of `path`."""
    return path + ".builds"


def current(path):
    """Return the build in place, as it is named under its builds; None where there is none."""
    target = os.path.join(os.path.dirname(path), os.readlink(path)) if os.path.islink(path) else None
    return target if target and os.path.isdir(target) else None


def identity_of(folder):
    """Return what the build in `folder` was made of; None where it was never finished."""
    try:
        with open(os.path.join(folder or "/nonexistent", MARKER), encoding="utf-8") as stream:
            return json.load(stream)
    except (OSError, ValueError):
        return None


def refuse_foreign(path):
    """Raise BuildError where something that we did not make lies at `path`."""
    if not os.path.lexists(path):
        return
    linked = os.path.islink(path) and os.path.dirname(os.readlink(path)) in (
        os.path.basename(builds_of(path)),
        builds_of(path),
    )
    if not linked:
        raise BuildError("%s is there and was not made by these playbooks: move it away, or choose another path" % path)


def refuse_unwritable(path):
    """Raise BuildError where nothing can be made at `path`, before anything is fetched for it."""
    folder = os.path.dirname(path)
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        raise BuildError("%s can't be made: %s is no folder. Choose another path" % (path, folder))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BuildError(
            "%s can't be made: %s may not write to %s (owner %s, mode %04o): choose a path that this user may write "
            "to, or run with --become" % (path, _user(os.geteuid()), folder, *_owner_and_mode(folder))
        )


def _owner_and_mode(folder):
    found = os.stat(folder)
    return _user(found.st_uid), found.st_mode & 0o7777


def _user(number):
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def next_folder(path, identity):
    """Return the folder to build `identity` in: a new one, for what was cut may still be writing in its own."""
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]
    base = os.path.join(builds_of(path), digest)
    number, folder = 1, base
    while os.path.lexists(folder):
        number += 1
        folder = "%s-%d" % (base, number)
    return folder


def _all(path):
    try:
        names = sorted(os.listdir(builds_of(path)))
    except FileNotFoundError:
        return []
    return [os.path.join(builds_of(path), name) for name in names]


def leftovers(path):
    """Return what builds that were cut have left."""
    return [folder for folder in _all(path) if identity_of(folder) is None]


def clear(path):
    """Remove what builds that were cut have left; what still is being written stays for the next time."""
    for folder in leftovers(path):
        shutil.rmtree(folder, ignore_errors=True)


def older(path):
    """Return every build but the one in place."""
    return [folder for folder in _all(path) if folder != current(path)]


def finish(path, folder, identity):
    """Mark the build in `folder` as done and put it in place, each in one step.

    Hosts that share the folder may do so at the same time.
    """
    marker, own = os.path.join(folder, MARKER), uuid.uuid4().hex
    part = "%s.%s.part" % (marker, own)
    with open(part, "w", encoding="utf-8") as stream:
        json.dump(identity, stream, sort_keys=True)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(part, marker)
    link = "%s.%s.part" % (path, own)
    os.symlink(os.path.join(os.path.basename(builds_of(path)), os.path.basename(folder)), link)
    os.replace(link, path)
