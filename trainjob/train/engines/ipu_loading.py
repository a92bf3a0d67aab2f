"""Blocks of a user's own Dataset by poptorch's asynchronous loader, in the runtime's order."""

from __future__ import annotations

from typing import Any, Dict, Generator

from torch.utils.data import Dataset

from trainjob.train.arithmetic import Arithmetic
from trainjob.train.batches import Block, _draws
from trainjob.train.sources import DatasetSource, SeededDataset, collate


class Reordered(Dataset):  # type: ignore[type-arg] # torch 1.10's takes no type
    """The samples that one instance takes from update `start` to `end`, in order, by number."""

    def __init__(self, dataset: Any, counts: Arithmetic, instance: int, start: int, end: int) -> None:
        self._dataset = SeededDataset(dataset)
        self._counts, self._instance, self._start, self._end = counts, instance, start, end
        self._of_update: Dict[int, Any] = {}

    def __len__(self) -> int:
        return (self._end - self._start) * self._counts.share

    def __getitem__(self, number: int) -> Any:
        """Return sample `number` of those still to come, seeded for its update and place."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        update, place = divmod(number, self._counts.share)
        if update not in self._of_update:
            self._of_update = {update: self._pairs(self._start + update)}  # one at a time: they come in order
        return self._dataset[self._of_update[update][place]]

    def _pairs(self, update: int) -> Any:
        indices = self._counts.sample_indices(update, 1, self._instance).reshape(-1)
        seeds = _draws(self._counts, self._instance, update, 1).integers(0, 2**32)
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
    """Yield this instance's blocks for updates `start` to `end`; closing it ends what loads them."""
    loader = poptorch.DataLoader(
        options,
        Reordered(source.dataset, counts, instance, start, end),
        batch_size=counts.micro_batch,
        shuffle=False,
        num_workers=workers,
        persistent_workers=False,
        # Every instance asks for its own samples already.
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
