"""Shared storage as hosts of commands see it: like clients of NFS, they believe for a while what they saw of a folder.

A host that changes, opens or lists a folder sees it anew. What others, or a job script, have changed since then shows
late: old contents, a file that is gone, none where there is one.
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
# What reads by a path, which comes first.
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

    def seen(self, host: str, path: str, *, opens: bool) -> str:
        """Return where the host finds what it sees of a path."""
        if not self._is_shared(path):
            return path
        folder, name = os.path.split(path)
        with self._looking():
            if os.path.isdir(path):
                if opens:
                    self._views.pop((host, path), None)
                return path  # its content has a view of its own
            return os.path.join(self._view(host, folder), name) if os.path.isdir(folder) else path

    def _is_shared(self, path: str) -> bool:
        return f"{path}/".startswith(self._shared)

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
                opens = name in ("open", "scandir", "listdir")
                return read(self.seen(host, os.fspath(path), opens=opens), *more, **named)

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
