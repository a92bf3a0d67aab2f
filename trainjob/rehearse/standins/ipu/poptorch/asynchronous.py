"""Batches made ahead. They come in memory that is used again: who keeps one over further iterations must clone it."""

from __future__ import annotations

import atexit
import collections
import io
import pickle
import threading
from typing import Any, Deque, Iterator, List, NamedTuple, Optional

import torch

from poptorch import values
from poptorch.enums import SharingStrategy

_END = object()


class _Failure(NamedTuple):
    error: BaseException


class AsynchronousDataAccessor:
    """Iterates over `dataset` (a loader) with up to `buffer_size` batches ready.

    A real one makes them in a process of its own, which gets the data set by pickling: it must pickle here, too.
    """

    def __init__(
        self,
        dataset: Any,
        buffer_size: int = 3,
        miss_sleep_time_in_ms: float = 0.1,  # noqa: ARG002 - nobody sleeps here: who waits is woken
        load_indefinitely: bool = True,
        early_preload: bool = False,
        sharing_strategy: SharingStrategy = SharingStrategy.ForkServer,
        rebatched_size: Optional[int] = None,  # noqa: ARG002 - batches come whole
    ) -> None:
        if sharing_strategy != SharingStrategy.Fork:
            _refuse_what_does_not_pickle(getattr(dataset, "dataset", dataset))
        self._loader = dataset
        self._size = buffer_size
        self._indefinitely = load_indefinitely
        self._ready: Deque[Any] = collections.deque()
        self._free: List[Any] = [None] * (buffer_size + 1)  # one more: the batch that the user has
        self._in_use: Any = _END
        self._amid_epoch = False
        self._closed = False
        self._changed = threading.Condition()
        self._thread: Optional[threading.Thread] = None
        if early_preload:
            self._start()

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        self._start()
        while self._amid_epoch and self._take() is not _END:
            pass  # the rest of an epoch that was left early
        return self._epoch()

    def _epoch(self) -> Iterator[Any]:
        while True:
            batch = self._take()
            if batch is _END:
                return
            yield batch

    def terminate(self) -> None:
        """End the thread that makes batches."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
            atexit.unregister(self.terminate)

    def _start(self) -> None:
        if self._thread is None or (not self._thread.is_alive() and not self._ready):
            self._closed = False
            self._thread = threading.Thread(target=self._work, name="poptorch-accessor", daemon=True)
            self._thread.start()
            atexit.register(self.terminate)

    def _take(self) -> Any:
        with self._changed:
            self._give_back()
            while not self._ready:
                if self._closed:
                    return _END
                self._changed.wait()
            batch = self._ready.popleft()
            if isinstance(batch, _Failure):
                raise batch.error
            self._in_use, self._amid_epoch = batch, batch is not _END
            return batch

    def _give_back(self) -> None:
        if self._in_use is not _END:
            self._free.append(self._in_use)
            self._in_use = _END
            self._changed.notify_all()

    def _work(self) -> None:
        try:
            while not self._closed:
                for batch in self._loader:
                    if not self._put(batch):
                        return
                self._add(_END)
                if not self._indefinitely:
                    return
        except BaseException as error:  # noqa: BLE001 - whoever takes the next batch must see it
            self._add(_Failure(error))

    def _put(self, batch: Any) -> bool:
        """Copy a batch into memory that is free, and return whether more are wanted."""
        with self._changed:
            while not self._free and not self._closed:
                self._changed.wait()
            if self._closed:
                return False
            memory = self._free.pop(0)
        self._add(_copied(batch, memory))
        return True

    def _add(self, item: Any) -> None:
        with self._changed:
            self._ready.append(item)
            self._changed.notify_all()


def _copied(batch: Any, memory: Any) -> Any:
    """Return the batch in `memory`, an older batch, where its tensors fit; else in memory of its own."""
    new, old = values.flat(batch), values.flat(memory)
    if [(one.shape, one.dtype) for one in new] != [(one.shape, one.dtype) for one in old]:
        return values.convert(torch.clone, batch)
    for one, other in zip(new, old):
        other.copy_(one)
    return values.like(batch, iter(old))


class _Nowhere(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return len(data)


def _refuse_what_does_not_pickle(dataset: Any) -> None:
    pickle.Pickler(_Nowhere(), protocol=pickle.HIGHEST_PROTOCOL).dump(dataset)
