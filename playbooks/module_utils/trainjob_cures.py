"""What a user needs to know when a command on a host fails. Python 3.8, on the hosts."""

from __future__ import annotations

import errno
import os

_LINES = 8
_LONGEST_COMMAND = 160
LITTLE_ROOM_MB = 50.0
# What a command says -> what to do. The first that fits is shown, else the cure that the task names: a program words
# its messages anew with every release.
_CURES = (
    ("No space left on device", "The disk is full: make room there, or choose another path"),
    ("Disk quota exceeded", "The quota is used up: make room there, or choose another path"),
    ("Read-only file system", "It is mounted read-only: choose another path"),
    ("Permission denied", "Choose a path that this user may write to, or run with --become"),
    ("DO NOT MATCH THE HASHES", "A wheel is not the one whose hash is written down: fetch it again, or write its hash"),
    ("require hashes", "Write a hash behind every requirement: pip-compile --generate-hashes does"),
    ("all requirements must have their versions pinned", "Pin every requirement with == and write its hash"),
    ("is not a supported wheel on this platform", "The wheel is for another Python: name the right interpreter"),
    ("ensurepip is not available", "Install this Python's venv package (python3-venv on Debian)"),
    ("No module named venv", "Install this Python's venv package (python3-venv on Debian)"),
)


def of_start(program, error, cure):
    """Return the message for a command that could not be started."""
    if error.errno == errno.ENOENT:
        return "%s is not on this host. %s" % (program, cure or "Install it, or name another")
    return "%s can't be started: %s. %s" % (program, error.strerror, cure)


def of_output(command, code, stdout, stderr, cure):
    """Return the message for a command that exited with `code`."""
    lines = (stderr.strip() or stdout.strip()).splitlines()
    known = next((text for sign, text in _CURES if sign in stderr or sign in stdout), cure)
    shown = command if len(command) <= _LONGEST_COMMAND else command[:_LONGEST_COMMAND] + " …"
    return "\n".join(["`%s` exited with %d:" % (shown, code), *lines[-_LINES:], *([known] if known else [])])


def of_room(place):
    """Return what to say where next to no room is left at `place`, which programs do not always say; else nothing."""
    if not place:
        return ""
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    found = os.statvfs(place)
    left_mb = found.f_bavail * found.f_frsize / 1e6
    if left_mb >= LITTLE_ROOM_MB:
        return ""
    return "Only %.1f MB are left at %s: make room there, or choose another path" % (left_mb, place)
