"""poptorch.DataLoader: one batch holds the samples of a whole call of the model in this process."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Optional

import torch
from torch.utils.data import BatchSampler, IterableDataset

from poptorch.asynchronous import AsynchronousDataAccessor
from poptorch.dataset_ranges import ProcessSampler
from poptorch.enums import DataLoaderMode


class DataLoader(torch.utils.data.DataLoader):  # type: ignore[type-arg] # torch 1.10's takes no type
    """torch's DataLoader with combined batches, which several processes share out among them."""

    def __init__(
        self,
        options: Any,
        dataset: Any,
        batch_size: int = 1,
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
        own = {"num_workers": num_workers, **kwargs}
        # A batch sampler of the user's own gives whole combined batches, and its own share of them.
        self._combined: Optional[int] = None if batch_sampler is not None else batch_size * _micro_batches(options)
        own["persistent_workers"] = num_workers > 0 if persistent_workers is None else persistent_workers
        if batch_sampler is not None:
            own["batch_sampler"] = batch_sampler
        elif isinstance(dataset, IterableDataset):
            _refuse_to_share_out(options, auto_distributed_partitioning)
            own.update(batch_size=self._combined, drop_last=drop_last)
        else:
            processes = options.Distributed.numProcesses if auto_distributed_partitioning else 1
            own.update(self._map_style(options, dataset, shuffle, drop_last, processes, kwargs))
        super().__init__(dataset, **own)
        self._accessor: Optional[AsynchronousDataAccessor] = None
        self._options = options
        if mode != DataLoaderMode.Sync:
            # For a map-style data set AsyncRebatched is Async; for any other its workers' batches are whole anyway.
            given = dict(async_options or {})
            if rebatched_worker_size is not None:
                given["rebatched_size"] = rebatched_worker_size
            self._accessor = AsynchronousDataAccessor(_Plain(self), **given)

    def _map_style(
        self, options: Any, dataset: Any, shuffle: Optional[bool], drop_last: bool, processes: int, kwargs: Any
    ) -> Dict[str, Any]:
        if processes == 1:
            given: Dict[str, Any] = {"batch_size": self._combined, "drop_last": drop_last}
            return given if "sampler" in kwargs else dict(given, shuffle=bool(shuffle))
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

    def in_this_process(self) -> Iterator[Any]:
        """Return the batches of an epoch, made when they are asked for."""
        return super().__iter__()

    def terminate(self) -> None:
        """End what makes batches ahead."""
        if self._accessor is not None:
            self._accessor.terminate()


class _Plain:
    """The loader's batches without the accessor that gets them from here."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader
        self.dataset = loader.dataset

    def __iter__(self) -> Iterator[Any]:
        return self._loader.in_this_process()

    def __len__(self) -> int:
        return len(self._loader)


def _micro_batches(options: Any) -> int:
    count = options.device_iterations * options.input_replicas * options.Training.gradient_accumulation
    return int(count)


def _refuse_to_share_out(options: Any, auto_distributed_partitioning: bool) -> None:
    assert not auto_distributed_partitioning or options.Distributed.numProcesses == 1, (  # noqa: S101 - as above
        "an IterableDataset can't be shared out over %d processes: let it give each its own samples, and pass "
        "auto_distributed_partitioning=False" % options.Distributed.numProcesses
    )
