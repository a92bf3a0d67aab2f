"""Prepares the next few values of an iterator in a background thread."""

from __future__ import annotations

import atexit
import threading
from collections import deque
from typing import Deque, Generic, Iterator, NamedTuple, Optional, TypeVar

Value = TypeVar("Value")


class _End(NamedTuple):
    error: Optional[BaseException]


class Ahead(Generic[Value]):
    """An iterator over `values` that keeps up to `most` of them ready; `close` ends the thread.

    An error of `values` is raised in place of the value. Because of the thread, `values` must not use random number
    generators that others use.
    """

    def __init__(self, values: Iterator[Value], most: int) -> None:
        self._values = values
        self._most = most
        self._ready: Deque[Value] = deque()
        self._end: Optional[_End] = None
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="trainjob-ahead", daemon=True)
        self._thread.start()
        # A thread still running C++ code when the interpreter ends would abort the process.
        atexit.register(self.close)

    def __iter__(self) -> Iterator[Value]:
        """Return itself."""
        return self

    def __next__(self) -> Value:
        """Return the next value, waiting for it if necessary."""
        with self._changed:
            while not self._ready:
                if self._end is not None:
                    raise self._end.error or StopIteration
                self._changed.wait()
            value = self._ready.popleft()
            self._changed.notify_all()
        return value

    def close(self) -> None:
        """End the thread after the value it is preparing, and discard the values that are ready."""
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._end = self._end or _End(None)
            self._changed.notify_all()
        self._thread.join()
        atexit.unregister(self.close)

    def _work(self) -> None:
        error: Optional[BaseException] = None
        try:
            while self._has_room():
                self._put(next(self._values))
        except StopIteration:
            pass
        except BaseException as raised:  # noqa: BLE001 - raised again by __next__
            error = raised
        with self._changed:
            self._end = self._end or _End(error)
            self._changed.notify_all()

    def _has_room(self) -> bool:
        with self._changed:
            while len(self._ready) >= self._most and not self._closed:
                self._changed.wait()
            return not self._closed

    def _put(self, value: Value) -> None:
        with self._changed:
            if not self._closed:
                self._ready.append(value)
                self._changed.notify_all()
