"""poptorch.DataLoader: one batch holds the samples of a whole call of the model, those of this process alone."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional

import torch
from torch.utils.data import BatchSampler, Dataset, IterableDataset
from torch.utils.data.dataloader import default_collate

from poptorch import values
from poptorch.asynchronous import AsynchronousDataAccessor
from poptorch.enums import DataLoaderMode

if TYPE_CHECKING:
    from poptorch.options import Options


class ProcessSampler:
    """One process's samples: a contiguous part of the data set, or of one permutation that all processes draw alike.

    With `whole_batches` all parts are the same whole number of combined batches; what is left over takes part in every
    other epoch, when all parts begin that much later. Without, parts are equal give or take one sample.
    """

    def __init__(
        self, samples: int, combined: int, process: int, processes: int, whole_batches: bool, seed: Optional[int]
    ) -> None:
        self._samples, self._process, self._processes = samples, process, processes
        self._each = combined * (samples // (combined * processes)) if whole_batches else None
        self._generator: Any = None if seed is None else torch.Generator().manual_seed(seed)
        self._epoch = 0

    def __len__(self) -> int:
        if self._each is not None:
            return self._each
        return self._bound(self._process + 1) - self._bound(self._process)

    def __iter__(self) -> Iterator[int]:
        begin = self._begin()
        self._epoch += 1
        part = range(begin, begin + len(self))
        if self._generator is None:
            return iter(part)
        order = torch.randperm(self._samples, generator=self._generator)
        return iter(order[part.start : part.stop].tolist())

    def _begin(self) -> int:
        if self._each is None:
            return self._bound(self._process)
        left_over = self._samples - self._each * self._processes
        return self._process * self._each + (left_over if self._epoch % 2 else 0)

    def _bound(self, process: int) -> int:
        return self._samples * process // self._processes


class DataLoader(torch.utils.data.DataLoader):  # type: ignore[type-arg] # torch 1.10's takes no type
    """torch's DataLoader with combined batches, which several processes share out among them."""

    def __init__(
        self,
        options: Options,
        dataset: Any,
        batch_size: Optional[int] = 1,
        shuffle: Optional[bool] = None,
        num_workers: int = 0,
        drop_last: bool = True,
        persistent_workers: Optional[bool] = None,
        auto_distributed_partitioning: bool = True,
        mode: DataLoaderMode = DataLoaderMode.Sync,
        async_options: Optional[Dict[str, Any]] = None,
        rebatched_worker_size: Optional[int] = None,
        batch_sampler: Any = None,
        **kwargs: Any,
    ) -> None:
        options._freeze()
        persistent = num_workers > 0 if persistent_workers is None else persistent_workers
        own = {"num_workers": num_workers, "persistent_workers": persistent, **kwargs}
        # Without a batch size the data set gives combined batches; a batch sampler gives micro batches.
        size = None if batch_sampler is not None else batch_size
        self._combined = None if size is None else size * _micro_batches(options)
        self._joined, self._drops_last = 0, drop_last
        if batch_sampler is not None:
            own["batch_sampler"] = CombinedBatchSampler(batch_sampler, _micro_batches(options), drop_last)
            dataset = _MicroBatches(dataset, own.pop("collate_fn", None) or default_collate)
            own["collate_fn"] = _combined
        elif batch_size is None:
            own["batch_size"] = None
        elif isinstance(dataset, IterableDataset):
            _refuse_to_share_out(options, auto_distributed_partitioning)
            own.update(batch_size=self._combined, drop_last=drop_last)
            if mode == DataLoaderMode.AsyncRebatched:
                # Workers give small batches, so that only the end of the whole is dropped, and not one's of each.
                self._joined = int(self._combined or 1)
                own.update(batch_size=rebatched_worker_size or 1, drop_last=False)
        else:
            processes = options.Distributed.numProcesses if auto_distributed_partitioning else 1
            own.update(self._map_style(options, dataset, shuffle, drop_last, processes, kwargs))
        super().__init__(dataset, **own)
        self._options, is_sync = options, mode == DataLoaderMode.Sync
        self._accessor = None if is_sync else self._ahead(async_options, rebatched_worker_size)

    def _ahead(
        self, async_options: Optional[Dict[str, Any]], rebatched_worker_size: Optional[int]
    ) -> AsynchronousDataAccessor:
        # For a map-style data set AsyncRebatched is Async.
        rebatched = {} if rebatched_worker_size is None else {"rebatched_size": rebatched_worker_size}
        return AsynchronousDataAccessor(_Plain(self), **{**(async_options or {}), **rebatched})

    def _map_style(
        self, options: Options, dataset: Any, shuffle: Optional[bool], drop_last: bool, processes: int, kwargs: Any
    ) -> Dict[str, Any]:
        if processes == 1:
            arguments: Dict[str, Any] = {"batch_size": self._combined, "drop_last": drop_last}
            return arguments if "sampler" in kwargs else dict(arguments, shuffle=bool(shuffle))
        if shuffle:
            assert options.random_seed is not None, (  # noqa: S101 - poptorch's own kind of refusal
                "shuffle=True in %d processes needs options.randomSeed(…), equal on all" % processes
            )
        sampler = ProcessSampler(
            len(dataset),
            int(self._combined or 1),
            options.Distributed.processId,
            processes,
            drop_last,
            options.random_seed if shuffle else None,
        )
        return {"batch_sampler": BatchSampler(sampler, int(self._combined or 1), drop_last)}

    @property
    def combinedBatchSize(self) -> Optional[int]:
        """Return the samples of one batch in this process; None with a batch sampler of the user's own."""
        return self._combined

    @property
    def options(self) -> Any:
        """Return the options that the batches are for."""
        return self._options

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override] # torch's own type is private
        if self._accessor is not None:
            return iter(self._accessor)
        return self.in_this_process()

    def __len__(self) -> int:
        if not self._joined:
            return int(super().__len__())
        samples: int = len(self.dataset)  # type: ignore[arg-type] # without a length it raises TypeError, as torch does
        return samples // self._joined if self._drops_last else -(-samples // self._joined)

    def in_this_process(self) -> Iterator[Any]:
        """Return the batches of an epoch, made when they are asked for."""
        batches = super().__iter__()
        return _joined(batches, self._joined, self._drops_last) if self._joined else batches

    def terminate(self) -> None:
        """End what makes batches ahead."""
        if self._accessor is not None:
            self._accessor.terminate()


class _MicroBatches(Dataset):  # type: ignore[type-arg] # torch 1.10's takes no type
    """A data set by the batches of a user's batch sampler: each is collated by itself, whatever its size."""

    def __init__(self, dataset: Any, collate: Callable[[List[Any]], Any]) -> None:
        self._dataset, self._collate = dataset, collate

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, batch: Any) -> Any:
        return self._collate([self._dataset[index] for index in batch])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._dataset, name)


def _combined(batches: List[Any]) -> Any:
    """Return collated micro batches as one batch."""
    tensors = [torch.cat(several) for several in zip(*[values.flat(batch) for batch in batches])]
    return values.like(batches[0], iter(tensors))


class CombinedBatchSampler:
    """Groups the micro batches of a user's batch sampler into combined batches."""

    def __init__(self, batch_sampler: Any, micro_batches: int, drop_last: bool) -> None:
        self._sampler, self._micro_batches, self._drops_last = batch_sampler, micro_batches, drop_last

    def __len__(self) -> int:
        count = len(self._sampler)
        return count // self._micro_batches if self._drops_last else -(-count // self._micro_batches)

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self._sampler)
        while True:
            group = list(itertools.islice(batches, self._micro_batches))
            if not group or (len(group) < self._micro_batches and self._drops_last):
                return
            yield group


def _joined(batches: Iterator[Any], size: int, drop_last: bool) -> Iterator[Any]:
    """Yield batches of `size` samples, made of smaller ones that divide it or don't."""
    kept: Any = None
    for batch in batches:
        if kept is None:
            kept = batch
        else:
            more = iter([torch.cat(pair) for pair in zip(values.flat(kept), values.flat(batch))])
            kept = values.like(kept, more)
        while kept is not None and _count(kept) >= size:
            yield values.convert(lambda tensor: tensor[:size], kept)
            kept = values.convert(lambda tensor: tensor[size:], kept) if _count(kept) > size else None
    if kept is not None and not drop_last:
        yield kept


def _count(batch: Any) -> int:
    return int(values.flat(batch)[0].shape[0])


class _Plain:
    """The loader's batches without the accessor that gets them from here."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader
        self.dataset = loader.dataset

    def __iter__(self) -> Iterator[Any]:
        return self._loader.in_this_process()

    def __len__(self) -> int:
        return len(self._loader)


def _micro_batches(options: Options) -> int:
    count = options.device_iterations * options.input_replicas * options.Training.gradient_accumulation
    return int(count)


def _refuse_to_share_out(options: Options, auto_distributed_partitioning: bool) -> None:
    assert not auto_distributed_partitioning or options.Distributed.numProcesses == 1, (  # noqa: S101 - as above
        "an IterableDataset can't be shared out over %d processes: let it give each its own samples, and pass "
        "auto_distributed_partitioning=False" % options.Distributed.numProcesses
    )
