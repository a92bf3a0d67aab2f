"""Batches made ahead by a process of their own. They come in memory that is used again: clone what you keep."""

from __future__ import annotations

import atexit
import contextlib
import io
import multiprocessing
import pickle
import signal
from typing import Any, Iterable, Iterator, List, NamedTuple, Optional, Sized

import torch
from trainjob_standins.announce import log

from poptorch import values
from poptorch.enums import SharingStrategy

_FREE = b"free"
_END = object()


class _EndOfEpoch(NamedTuple):
    """The loader has no further batch."""


class _Failure(NamedTuple):
    error: BaseException


class AsynchronousDataAccessor:
    """Iterates over `dataset` (a loader) with up to `buffer_size` batches ready.

    A process of its own makes them, so that it draws no random number of this one. Batches cross by pickling. The data
    set must pickle unless it is shared by forking, as a real accessor requires; this one always forks.
    """

    def __init__(
        self,
        dataset: Any,
        buffer_size: int = 3,
        miss_sleep_time_in_ms: float = 0.1,  # noqa: ARG002 - nobody sleeps here: a reader waits for the pipe
        load_indefinitely: bool = True,
        early_preload: bool = False,
        sharing_strategy: SharingStrategy = SharingStrategy.ForkServer,
        rebatched_size: Optional[int] = None,  # noqa: ARG002 - batches come whole
    ) -> None:
        if sharing_strategy != SharingStrategy.Fork:
            # The real one hands the data set to another process: what does not pickle fails here as it does there.
            pickle.Pickler(_Nowhere(), protocol=pickle.HIGHEST_PROTOCOL).dump(getattr(dataset, "dataset", dataset))
        self._loader = dataset
        self._slots = buffer_size + 1  # one more: the batch that the user has
        self._indefinitely = load_indefinitely
        self._memory: List[Any] = []
        self._in_use: Any = _END
        self._amid_epoch = False
        self._process: Optional[Any] = None
        self._pipe: Optional[Any] = None
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
        """End the process that makes batches."""
        if self._process is not None:
            self._pipe.close()  # type: ignore[union-attr] # the two are made together
            # Not SIGTERM: the process may be amid the user's code, which may handle that.
            self._process.kill()
            self._process.join()
            self._process = self._pipe = None
            atexit.unregister(self.terminate)

    def _start(self) -> None:
        if self._process is not None:
            return
        # A data set that does not pickle can only be forked, and forking spares every other one an import of torch.
        context = multiprocessing.get_context("fork")
        self._pipe, far = context.Pipe()
        words = (self._loader, self._indefinitely, far, self._pipe)
        self._process = context.Process(target=_make_batches, args=words, name="poptorch-accessor")
        self._process.start()
        log("DEBUG", "AsynchronousDataAccessor worker process: %s" % self._process.pid)
        far.close()
        self._memory, self._in_use, self._amid_epoch = [None] * self._slots, _END, False
        for _ in range(self._slots):
            self._pipe.send_bytes(_FREE)
        # Before multiprocessing's own handler, which would wait for the process.
        atexit.register(self.terminate)

    def _take(self) -> Any:
        """Return the next batch, or _END behind the last one of an epoch."""
        if self._pipe is None:
            return _END
        self._give_back()
        item = self._receive()
        if isinstance(item, _Failure):
            self.terminate()
            raise item.error
        self._amid_epoch = not isinstance(item, _EndOfEpoch)
        if self._amid_epoch:
            self._in_use = _copied(item, self._memory.pop(0))
            return self._in_use
        if not self._indefinitely:
            self.terminate()
        return _END

    def _give_back(self) -> None:
        if self._in_use is not _END:
            self._memory.append(self._in_use)
            self._in_use = _END
            # What the process sent before it ended is still to be read.
            with contextlib.suppress(BrokenPipeError):
                self._pipe.send_bytes(_FREE)  # type: ignore[union-attr] # as _take has seen

    def _receive(self) -> Any:
        try:
            return pickle.loads(self._pipe.recv_bytes())  # type: ignore[union-attr] # noqa: S301 - our own process
        except (EOFError, ConnectionResetError):
            self._process.join()  # type: ignore[union-attr] # made with the pipe
            code = self._process.exitcode  # type: ignore[union-attr]
            return _Failure(RuntimeError("the process that loads batches ended with exit code %s" % code))


def _make_batches(loader: Iterable[object], indefinitely: bool, pipe: Any, other_end: Any) -> None:
    """Send the batches of `loader`, each once a slot is free, until the reader is gone."""
    other_end.close()  # held here, it would hide that the reader has died
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the reader, who ends this process
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # OpenMP's threads do not survive a fork.
    torch.set_num_threads(1)
    try:
        while True:
            for batch in loader:
                pipe.recv_bytes()
                pipe.send_bytes(_pickled(batch))
            pipe.send_bytes(_pickled(_EndOfEpoch()))
            if not indefinitely:
                return
    except (EOFError, ConnectionError):
        return
    except BaseException as error:  # noqa: BLE001 - whoever takes the next batch must see it
        pipe.send_bytes(_failure(error))


def _failure(error: BaseException) -> bytes:
    try:
        message = _pickled(_Failure(error))
        pickle.loads(message)  # noqa: S301 - our own bytes: an error may pickle and still not be readable
    except Exception:  # noqa: BLE001 - whatever an error of the user's own does when it is pickled
        return _pickled(_Failure(RuntimeError("%s: %s" % (type(error).__name__, error))))
    return message


def _pickled(item: object) -> bytes:
    return pickle.dumps(item, protocol=pickle.HIGHEST_PROTOCOL)


def _copied(batch: object, memory: Any) -> Any:
    """Return the batch in `memory`, an older batch, where its tensors fit; else in memory of its own."""
    new, old = values.flat(batch), values.flat(memory)
    if [(one.shape, one.dtype) for one in new] != [(one.shape, one.dtype) for one in old]:
        return batch
    for one, other in zip(new, old):
        other.copy_(one)
    return values.like(batch, iter(old))


class _Nowhere(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, data: Sized) -> int:  # type: ignore[override] # whatever pickle hands over
        return len(data)
