"""Sources of whatever data a task opens, and of an iterable Dataset: samples in the order in which it yields them.

Every instance reads the whole stream and keeps its share of each global batch. So an update has the same samples in the
same micro batches, whatever the number of instances. Resuming within an epoch means reading up to that place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generator, Iterable, Iterator, List, Optional, Tuple

from torch.utils.data import DataLoader, IterableDataset

from trainjob.contract.errors import UserError
from trainjob.train.samples import nested
from trainjob.train.samples.arithmetic import Arithmetic
from trainjob.train.samples.draws import STREAM, Draws, key
from trainjob.train.samples.nested import Nested
from trainjob.train.samples.sources import DatasetSource, Source, collate, seed_everything
from trainjob.train.stopping import without_usr1

if TYPE_CHECKING:
    from trainjob.train.samples.draws import Indices

# An epoch that no training has.
_HELD_OUT_EPOCH = -1


class StreamSource:
    """An iterable Dataset, whose samples are gathered by their place in the stream, in ascending order."""

    sample_bytes: Optional[int] = None

    def __init__(self, dataset: Iterable[object], samples: int) -> None:
        self.dataset = dataset
        self._samples = samples
        self._reader: Optional[StreamReader] = None

    def __len__(self) -> int:
        """Return the number of samples in an epoch."""
        return self._samples

    def gather(self, indices: Indices, draws: Optional[Draws]) -> Tuple[Nested, Nested]:  # noqa: ARG002 - part of the Protocol
        """Return the samples at the places `indices`, which ascend; a smaller one than before restarts the stream."""
        places: List[int] = indices.tolist()
        if self._reader is None or self._reader.place > places[0]:
            self._reader = StreamReader(self.dataset, 0, _HELD_OUT_EPOCH, self._samples)
        return collate([self._reader.at(place) for place in places])


class StreamReader:
    """One epoch of the stream. Every generator is seeded before each sample, even before one that is skipped."""

    def __init__(self, dataset: Iterable[object], seed: int, epoch: int, samples: int) -> None:
        if hasattr(dataset, "set_epoch"):
            dataset.set_epoch(max(0, epoch))
        self._seed, self._epoch, self._samples = seed, epoch, samples
        seed_everything(key(seed, STREAM, epoch) >> 32)
        self._stream = iter(dataset)
        self.place = 0  # of the next sample

    def at(self, place: int) -> object:
        """Return the sample at `place`, reading up to it. Raises UserError if the stream ends before."""
        while True:
            seed_everything(key(self._seed, STREAM, self._epoch, self.place) >> 32)
            try:
                sample = next(self._stream)
            except StopIteration:
                raise UserError(
                    "the iterable Dataset ended after %d samples, and an epoch was planned with %d"
                    % (self.place, self._samples),
                    "give --samples %d, or let it yield more" % self.place,
                ) from None
            self.place += 1
            if self.place > place:
                return sample


class Share(IterableDataset):  # type: ignore[type-arg] # not generic in torch 1.10
    """One instance's share of updates `start` to `end`: inputs and targets, block after block."""

    def __init__(self, source: StreamSource, counts: Arithmetic, instance: int, start: int, end: int) -> None:
        self._source, self._counts, self._instance, self._start, self._end = source, counts, instance, start, end

    def __iter__(self) -> Iterator[Tuple[Nested, Nested]]:
        """Yield the blocks in order."""
        reader: Optional[StreamReader] = None
        slots = self._counts.slots(self._instance).tolist()
        for first in range(self._start, self._end, self._counts.device_iterations):
            epoch, within = self._counts.place(first)
            if reader is None or within == 0:
                reader = StreamReader(self._source.dataset, self._counts.seed, epoch, len(self._source))
            updates = range(within, within + min(self._counts.device_iterations, self._end - first))
            places = [update * self._counts.global_batch + slot for update in updates for slot in slots]
            yield collate([reader.at(place) for place in places])


def shares(
    source: StreamSource, counts: Arithmetic, instance: int, start: int, end: int, workers: int, pin: bool
) -> Generator[Tuple[Nested, Nested], None, None]:
    """Yield inputs and targets of each block. With `workers`, one process reads ahead: a stream has no use for more.

    Raises UserError if the end of an epoch is to be padded.
    """
    if counts.remainder == "pad":
        raise UserError("an iterable Dataset can't be padded with its first samples", "leave out --remainder pad")
    mine: Any = Share(source, counts, instance, start, end)
    for block in without_usr1(DataLoader(mine, batch_size=None, num_workers=1)) if workers else mine:
        yield nested.convert(lambda tensor: tensor.pin_memory(), block) if pin else block


def as_source(data: object, samples: Optional[int] = None) -> Source:
    """Return `data` as a source: one of ours as it is, a user's own Dataset wrapped. Raises UserError.

    `samples` is the length of an epoch of an iterable one.
    """
    given: Any = data
    if hasattr(data, "gather"):
        source: Source = given
        return source
    if is_stream(data):
        try:
            return StreamSource(given, len(given) if samples is None else samples)
        except TypeError:
            raise UserError(
                "open_data returned an iterable Dataset (%s) without __len__, so the length of an epoch is unknown"
                % type(data).__name__,
                "give --samples",
            ) from None
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        return DatasetSource(given)
    raise UserError(
        "open_data returned %s, which can neither be indexed (__len__ and __getitem__) nor iterated over"
        % type(data).__name__,
        "return a Dataset, a ShardSource or a TensorSource",
    )


def length_of(dataset: object) -> Optional[int]:
    """Return the length of a held-out Dataset that has none and can only be iterated over, by reading it; else None."""
    given: Any = dataset
    return sum(1 for _ in given) if is_stream(dataset) and not hasattr(dataset, "__len__") else None


def is_stream(data: object) -> bool:
    """Return whether `data` can only be iterated over. torch's IterableDataset inherits a __getitem__ that raises."""
    return isinstance(data, IterableDataset) or (hasattr(data, "__iter__") and not hasattr(data, "__getitem__"))
