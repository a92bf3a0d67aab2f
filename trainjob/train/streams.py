"""A user's iterable Dataset: samples in the order in which it gives them, epoch after epoch.

Every instance reads the whole stream and keeps its share of each global batch, so that an update has the same samples
in the same micro batches whatever the number of instances. Going on in the middle of an epoch is reading up to there.
"""

from __future__ import annotations

from typing import Any, Generator, Iterator, List, Optional, Tuple

from torch.utils.data import DataLoader, IterableDataset

from trainjob.contract.errors import UserError
from trainjob.train import nested
from trainjob.train.arithmetic import Arithmetic
from trainjob.train.draws import STREAM, Draws, key
from trainjob.train.sources import collate, seed_everything
from trainjob.train.stopping import begin_unasked

# Evaluation reads what an epoch of no training run reads.
_HELD_OUT_EPOCH = -1


class StreamSource:
    """An iterable Dataset, asked for samples by their place in the stream: in rising order, or from the beginning."""

    sample_bytes: Optional[int] = None

    def __init__(self, dataset: Any, samples: int) -> None:
        self._dataset = dataset
        self._samples = samples
        self._reader: Optional[Reader] = None

    def __len__(self) -> int:
        """Return the samples of an epoch."""
        return self._samples

    def gather(self, indices: Any, draws: Optional[Draws]) -> Tuple[Any, Any]:  # noqa: ARG002 - the Protocol's
        """Return the samples at the places `indices`, which rise: a stream has no other order."""
        wanted = indices.tolist()
        if self._reader is None or self._reader.place > wanted[0]:
            self._reader = self.read(0, _HELD_OUT_EPOCH)
        return collate([self._reader.at(place) for place in wanted])

    def read(self, seed: int, epoch: int) -> "Reader":
        """Return a reader at the beginning of `epoch`, counted from 0."""
        return Reader(self._dataset, seed, epoch, self._samples)


class Reader:
    """One epoch's stream. Each sample is made after seeding every generator for it alone, also one that is skipped."""

    def __init__(self, dataset: Any, seed: int, epoch: int, samples: int) -> None:
        if hasattr(dataset, "set_epoch"):
            dataset.set_epoch(max(0, epoch))
        self._seed, self._epoch, self._samples = seed, epoch, samples
        seed_everything(key(seed, STREAM, epoch) >> 32)
        self._stream = iter(dataset)
        self.place = 0  # of the sample that comes next

    def at(self, place: int) -> Any:
        """Return the sample at `place`, reading up to it. Raises UserError where the stream ends before."""
        while True:
            seed_everything(key(self._seed, STREAM, self._epoch, self.place) >> 32)
            try:
                sample = next(self._stream)
            except StopIteration:
                raise self._ended() from None
            self.place += 1
            if self.place > place:
                return sample

    def _ended(self) -> UserError:
        return UserError(
            "the iterable Dataset ended after %d samples of an epoch that was planned with %d: give --samples %d, or "
            "have it go on" % (self.place, self._samples, self.place)
        )


def as_stream(dataset: Any, samples: Optional[int]) -> StreamSource:
    """Return the iterable `dataset` as a source of `samples` an epoch, else as many as it says. Raises UserError."""
    try:
        return StreamSource(dataset, len(dataset) if samples is None else samples)
    except TypeError:
        raise UserError(
            "open_data gave an iterable Dataset (%s) without __len__, so nothing says how long an epoch is: give "
            "--samples" % type(dataset).__name__
        ) from None


def length_of(dataset: Any) -> Optional[int]:
    """Return the samples of a held-out Dataset that can only be iterated over, reading it where it does not say."""
    if not is_stream(dataset) or hasattr(dataset, "__len__"):
        return None
    return sum(1 for _ in dataset)


def is_stream(given: Any) -> bool:
    """Return whether `given` can only be iterated over. torch's IterableDataset inherits a __getitem__ that raises."""
    return isinstance(given, IterableDataset) or (hasattr(given, "__iter__") and not hasattr(given, "__getitem__"))


class Share(IterableDataset):  # type: ignore[type-arg] # torch 1.10's has no parameters at run time
    """What one instance takes of updates `start` to `end`: inputs and targets of block after block."""

    def __init__(self, source: StreamSource, counts: Arithmetic, instance: int, start: int, end: int) -> None:
        self._source, self._counts, self._instance, self._start, self._end = source, counts, instance, start, end

    def __iter__(self) -> Iterator[Tuple[Any, Any]]:
        """Yield the blocks in order."""
        reader: Optional[Reader] = None
        for first in range(self._start, self._end, self._counts.device_iterations):
            epoch, within = self._counts.place(first)
            if reader is None or within == 0:
                reader = self._source.read(self._counts.seed, epoch)
            updates = range(within, within + min(self._counts.device_iterations, self._end - first))
            yield collate([reader.at(place) for place in self._places(updates)])

    def _places(self, updates: range) -> List[int]:
        slots = self._counts.slots(self._instance).tolist()
        return [update * self._counts.global_batch + slot for update in updates for slot in slots]


def shares(
    source: StreamSource, counts: Arithmetic, instance: int, start: int, end: int, workers: int, pin: bool
) -> Generator[Tuple[Any, Any], None, None]:
    """Yield inputs and targets of each block; with `workers` a process of its own reads ahead, as one stream has one.

    Raises UserError where the end of an epoch is to be padded.
    """
    if counts.remainder == "pad":
        raise UserError("an iterable Dataset can't be padded from its beginning: leave --remainder out, which drops")
    mine: Any = Share(source, counts, instance, start, end)
    for block in begin_unasked(DataLoader(mine, batch_size=None, num_workers=1)) if workers else mine:
        yield nested.convert(lambda tensor: tensor.pin_memory(), block) if pin else block
