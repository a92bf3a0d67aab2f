"""Work done ahead in a background thread: the next few values of an iterator are ready when they are asked for."""

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

    What `values` raises is raised where the value would have come. `values` must draw on no generator of random
    numbers that others use: its thread runs beside them.
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
        # A thread that the interpreter's end finds at work in C++ would abort the process.
        atexit.register(self.close)

    def __iter__(self) -> Iterator[Value]:
        """Return itself."""
        return self

    def __next__(self) -> Value:
        """Return the next value, waiting for it where it is not ready."""
        with self._changed:
            while not self._ready:
                if self._end is not None:
                    raise self._end.error or StopIteration
                self._changed.wait()
            value = self._ready.popleft()
            self._changed.notify_all()
        return value

    def close(self) -> None:
        """End the thread once it has made the value it is making; the values that are ready are let go."""
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
        except BaseException as raised:  # noqa: BLE001 - whatever it is, the one who asks must see it
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
