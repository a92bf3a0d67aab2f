"""Blocks of a user's own Dataset through poptorch's asynchronous loader, in the order of the runtime."""

from __future__ import annotations

from typing import Any, Dict, Generator, List, Tuple

from torch.utils.data import Dataset

from trainjob.train.samples.arithmetic import Arithmetic
from trainjob.train.samples.batches import Block, draws_of
from trainjob.train.samples.sources import DatasetSource, SeededDataset, collate


class Reordered(Dataset):  # type: ignore[type-arg] # not generic in torch 1.10
    """The samples that one instance takes in updates `start` to `end`, in order and by number."""

    def __init__(self, dataset: Any, counts: Arithmetic, instance: int, start: int, end: int) -> None:
        self._dataset = SeededDataset(dataset)
        self._counts, self._instance, self._start, self._end = counts, instance, start, end
        self._of_update: Dict[int, List[Tuple[int, int]]] = {}

    def __len__(self) -> int:
        return (self._end - self._start) * self._counts.share

    def __getitem__(self, number: int) -> Any:
        """Return the sample at position `number`, made with the seed of its update and place."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        update, place = divmod(number, self._counts.share)
        if update not in self._of_update:  # only the current one is kept: samples are requested in order
            self._of_update = {update: self._pairs(self._start + update)}
        return self._dataset[self._of_update[update][place]]

    def _pairs(self, update: int) -> List[Tuple[int, int]]:
        indices = self._counts.sample_indices(update, 1, self._instance).reshape(-1)
        seeds = draws_of(self._counts, self._instance, update, 1).integers(0, 2**32)
        return list(zip(seeds.tolist(), indices.tolist()))


def blocks(
    poptorch: Any,
    options: Any,
    source: DatasetSource,
    counts: Arithmetic,
    instance: int,
    start: int,
    end: int,
    workers: int,
) -> Generator[Block, None, None]:
    """Yield this instance's blocks for updates `start` to `end`; closing it ends the loader."""
    loader = poptorch.DataLoader(
        options,
        Reordered(source.dataset, counts, instance, start, end),
        batch_size=counts.micro_batch,
        shuffle=False,
        num_workers=workers,
        persistent_workers=False,
        # Every instance already requests its own samples only.
        auto_distributed_partitioning=False,
        mode=poptorch.DataLoaderMode.Async,
        async_options={"load_indefinitely": False},
        collate_fn=collate,
    )
    try:
        for number, (inputs, targets) in enumerate(loader):
            yield Block(start + number * counts.device_iterations, counts.device_iterations, inputs, targets)
    finally:
        loader.terminate()
