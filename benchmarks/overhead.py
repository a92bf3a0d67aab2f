"""The cost of a weight update here, beside a hand-written torch DDP loop: same net, batches and order, in one run.

    python benchmarks/overhead.py [--instances 2] [--seconds 40]

All sides take turns of some updates each in the same processes: the loop that the tutorials teach, on batches in memory
and on torch's DataLoader (whose order is its own), and our engines `ddp`, with any and with a fixed order of sums, and
`naive`. The figures are medians over turns; between which the middle half of the turns' own ratios lie says how far to
trust a ratio.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import turns
from benchmarks.turns import Turn

HAND, LOADER, DDP, NAIVE, SINGLE = "by hand", "by hand, DataLoader", "ddp", "naive", "single"
FIXED = "ddp, fixed order of sums"
UPDATES = {"40 k": 200, "7.9 M": 12}  # of a turn
RATIOS = ((DDP, HAND), (DDP, LOADER), (NAIVE, DDP), (FIXED, DDP), (SINGLE, HAND), (SINGLE, LOADER))


def main() -> None:
    asked = turns.parser(__doc__).parse_args()
    if asked.folder:
        one_rank(Path(asked.folder), asked)
    for net in turns.NETS:
        found = turns.in_ranks(__file__, net, asked)
        times = {name: [Turn(*turn).each() for turn in side] for name, side in found.items()}
        print(f"{net} parameters, {asked.instances} processes, {len(times[HAND])} turns: milliseconds an update")
        for name, seconds in times.items():
            print(f"  {name:<28}{1e3 * statistics.median(seconds):>10.3f}")
        for one, other in (pair for pair in RATIOS if times.keys() >= set(pair)):
            print(f"  {f'{one} ÷ {other}':<28}{ratio(times[one], times[other])}")


def ratio(ones: list[float], others: list[float]) -> str:
    """Return the ratio of the medians, and between which ratios the middle half of the turns lie."""
    low, _, high = statistics.quantiles((one / other for one, other in zip(ones, others, strict=True)), n=4)
    return f"{statistics.median(ones) / statistics.median(others):>10.3f}   ({low:.2f} to {high:.2f})"


def one_rank(folder: Path, asked: argparse.Namespace) -> None:
    world = turns.join(folder)
    several = {DDP: {"engine": DDP}, NAIVE: {"engine": NAIVE}, FIXED: {"engine": DDP, "sum_order": "fixed"}}
    kinds = several if world.size > 1 else {SINGLE: {"engine": SINGLE}}
    contexts = {
        name: turns.open_context(folder, world, **turns.settings(asked.net, world.size, **kind))
        for name, kind in kinds.items()
    }
    first = next(iter(contexts.values()))
    sides = {
        HAND: by_hand(first, world, itertools.cycle(in_memory(first, world))),
        LOADER: by_hand(first, world, from_loader(first, world)),
        **{name: turns.ours(context) for name, context in contexts.items()},
    }
    turns.end(world, folder, turns.taken(world, sides, dict.fromkeys(sides, UPDATES[asked.net]), asked.seconds))


def in_memory(context: Any, world: Any) -> list[Any]:
    """Return this rank's batches of an epoch, in our order."""
    from trainjob.train.samples.batches import blocks

    made = blocks(context.train, context.counts, world.rank, 0, context.counts.updates_per_epoch)
    return [(block.inputs.clone(), block.targets.clone()) for block in made]


def from_loader(context: Any, world: Any) -> Iterator[Any]:
    """Yield batches as the tutorials have them made: a sampler that parts the data over ranks, no workers."""
    import numpy
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    data = TensorDataset(*context.train.gather(numpy.arange(len(context.train)), None))
    sampler: DistributedSampler[Any] = DistributedSampler(data, world.size, world.rank, drop_last=True)
    loader = DataLoader(data, batch_size=turns.MICRO_BATCH, sampler=sampler, drop_last=True)
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        yield from loader


def by_hand(context: Any, world: Any, batches: Iterator[Any]) -> turns.Side:
    """Return the loop that the tutorials teach, with nothing around it."""
    import torch
    from torch import nn

    model = context.engine.parts.task.build_model()
    if world.size > 1:
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0001, momentum=0.9)

    def train(updates: int) -> None:
        for inputs, targets in itertools.islice(batches, updates):
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()

    return train


if __name__ == "__main__":
    main()
