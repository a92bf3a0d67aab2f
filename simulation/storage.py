"""Shared storage as hosts of commands see it: like clients of NFS, they believe for a while what they saw of a folder.

A host that changes a folder itself sees it anew. What others, or a job script, have changed since its last look shows
late: old contents, a file that is gone, none where there is one, an old list.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import itertools
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from simulation.world import World

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_LOOKED_BEFORE = 0.7  # how often a host has looked at a folder just before another one changes it
# What reads by a path, which comes first. `scandir` and `listdir` read the folder itself.
_READERS: tuple[tuple[Any, str], ...] = (
    *((os, name) for name in ("stat", "lstat", "readlink", "access", "open", "scandir", "listdir")),
    *((place, "open") for place in (io, builtins)),
)


class Storage:
    """The folders that all hosts share. `late_s`: how long a host believes what it has seen; 0: it looks each time."""

    def __init__(self, world: World, hosts: Sequence[str], shared: Sequence[Path], late_s: float) -> None:
        self.world, self.hosts, self.late_s = world, hosts, late_s
        self.is_looking = False  # it reads and copies for itself, which is no step of a command
        self._shared = tuple(f"{folder}/" for folder in shared)
        self._numbers = itertools.count()
        self._draws = world.random("looks at folders")
        self._views: dict[tuple[str, str], tuple[float, str]] = {}

    def changes(self, path: str, by: str = "") -> None:
        """Have the host `by` see anew the folder in which it changes something; others may have looked just before."""
        folder = os.path.dirname(path)
        for host in self.hosts if self.late_s and self._is_shared(folder) else ():
            if host == by:
                self._views.pop((host, folder), None)
                self._views.pop((host, path), None)
            elif self._draws.random() < _LOOKED_BEFORE:
                with self._looking():
                    if os.path.isdir(folder):
                        self._view(host, folder)

    def seen(self, host: str, path: str, *, lists: bool) -> str:
        """Return where the host finds what it sees of a path. `lists`: it reads the folder of that name."""
        folder, name = (path, "") if lists else os.path.split(path)
        if not self._is_shared(folder):
            return path
        with self._looking():
            if not os.path.isdir(folder):
                return path
            found = os.path.join(self._view(host, folder), name)
            # A folder is itself, whose content has a view of its own: removing it begins with a descriptor of it.
            return path if name and os.path.isdir(found) and os.path.isdir(path) else found

    def _is_shared(self, folder: str) -> bool:
        return f"{folder}/".startswith(self._shared)

    def _view(self, host: str, folder: str) -> str:
        """Return the copy of what the host believes to be in a folder."""
        at, view = self._views.get((host, folder), (-self.late_s, ""))
        if self.world.now - at >= self.late_s:
            view = f"{self.world.folder}/views/{host}/{next(self._numbers)}"
            _copy(folder, view)
            self._views[host, folder] = self.world.now, view
        return view

    @contextlib.contextmanager
    def _looking(self) -> Iterator[None]:
        self.is_looking = True
        try:
            yield
        finally:
            self.is_looking = False

    @contextlib.contextmanager
    def shown_to(self, current: Callable[[], str | None]) -> Iterator[None]:
        """Inside, what reads a file reads what the host that `current` names sees; None: what is there."""
        if not self.late_s:
            yield
            return
        real = [(place, name, getattr(place, name)) for place, name in _READERS]

        def reader(name: str, read: Callable[..., Any]) -> Callable[..., Any]:
            def reads(path: Any = ".", *more: Any, **named: Any) -> Any:
                host = None if self.is_looking else current()
                writes = name == "open" and (_flags(more, named) & _WRITES)
                if host is None or writes or not isinstance(path, str | os.PathLike) or named.get("dir_fd"):
                    return read(path, *more, **named)
                found = self.seen(host, os.fspath(path), lists=name in ("scandir", "listdir"))
                given = read(found, *more, **named)
                return _Listing(given, os.fspath(path)) if name == "scandir" else given

            return reads

        for place, name, read in real:
            ours = reader(name, read)
            setattr(place, name, ours)
            for able in (os.supports_follow_symlinks, os.supports_dir_fd, os.supports_fd):
                able.update({ours} if read in able else ())
        try:
            yield
        finally:
            for place, name, read in real:
                setattr(place, name, read)


class _Entry:
    """An entry of a listing, which has the path by which the folder was asked for."""

    def __init__(self, entry: os.DirEntry[str], folder: str) -> None:
        self._entry, self.path = entry, os.path.join(folder, entry.name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entry, name)

    def __fspath__(self) -> str:
        return self.path


class _Listing:
    """What os.scandir returns."""

    def __init__(self, entries: Any, folder: str) -> None:
        self._entries, self._folder = entries, folder

    def __iter__(self) -> _Listing:
        return self

    def __next__(self) -> _Entry:
        return _Entry(next(self._entries), self._folder)

    def __enter__(self) -> _Listing:
        return self

    def __exit__(self, *_: object) -> None:
        self._entries.close()


def _flags(more: tuple[Any, ...], named: dict[str, Any]) -> int:
    """Return the flags of os.open, or those that a mode of `open` stands for."""
    asked = more[0] if more else named.get("flags", named.get("mode", "r"))
    return asked if isinstance(asked, int) else os.O_WRONLY if set(asked) & set("wax+") else 0


def _copy(folder: str, view: str) -> None:
    """Copy what is in a folder, with the ages of the files; of folders in it only their names."""
    os.makedirs(view)
    for name in os.listdir(folder):
        source, target = os.path.join(folder, name), os.path.join(view, name)
        with contextlib.suppress(FileNotFoundError):
            if os.path.isdir(source) and not os.path.islink(source):
                os.mkdir(target)
                shutil.copystat(source, target)
            else:
                shutil.copy2(source, target, follow_symlinks=False)
    shutil.copystat(folder, view)
