"""The cost of checkpoints while training goes on: turns of updates with a checkpoint beside turns without, in one run.

    python benchmarks/checkpoint.py [--instances 2] [--seconds 20]

A turn with a checkpoint saves after its first update and ends once the checkpoint is on the disk, so that all of its
writing falls into the turn: the seconds that it takes longer than the turn before it are what the checkpoint costs.
"stands still" is the part of them that training waits for, "cores" what the writing process spends on them.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import turns
from benchmarks.turns import Turn

PLAIN, SAVING, WAITS = "without", "with", "waits"
UPDATES = {"40 k": 20, "7.9 M": 25}  # of a turn: long enough to write a checkpoint in
EVERY = 100  # updates to a checkpoint, for the share of throughput


def main() -> None:
    asked = turns.parser(__doc__).parse_args()
    if asked.folder:
        one_rank(Path(asked.folder), asked)
    print(f"{asked.instances} processes, milliseconds: medians, and between which values the middle half lies")
    print("parameters  checkpoint    update  a checkpoint costs       stands still   cores   of one in 100 updates")
    for net in turns.NETS:
        print(f"{net:<10}{line(turns.in_ranks(__file__, net, asked))}")


def line(found: dict[str, Any]) -> str:
    plain, saving = ([Turn(*turn) for turn in found[side]] for side in (PLAIN, SAVING))
    update = statistics.median(turn.each() for turn in plain)
    costs = [one.seconds - other.seconds for one, other in zip(saving, plain, strict=True)]
    cores = [one.core_seconds - other.core_seconds for one, other in zip(saving, plain, strict=True)]
    low, cost, high = statistics.quantiles(costs, n=4)
    return (
        f"{found['bytes'] / 1e6:>9.1f} MB{1e3 * update:>10.3f}{1e3 * cost:>8.1f} ({1e3 * low:.1f} to {1e3 * high:.1f})"
        f"{1e3 * statistics.median(found[WAITS]):>15.1f}{1e3 * statistics.median(cores):>8.1f}"
        f"{100 * cost / (EVERY * update):>18.2f} %   {len(plain)} turns"
    )


def one_rank(folder: Path, asked: argparse.Namespace) -> None:
    world = turns.join(folder)
    context = turns.open_context(folder, world, **turns.settings(asked.net, world.size))
    updates = UPDATES[asked.net]
    waits: list[float] = []
    sides = {PLAIN: turns.ours(context), SAVING: saving(context, updates, waits)}
    found = turns.taken(world, sides, dict.fromkeys(sides, updates), asked.seconds)
    newest = max(context.paths.checkpoints.glob("update-*"), default=folder)
    turns.end(world, folder, {**found, WAITS: waits, "bytes": sum(file.stat().st_size for file in newest.iterdir())})


def saving(context: Any, updates: int, waits: list[float]) -> turns.Side:
    """Return our loop with one checkpoint a turn, which is on the disk when the turn ends."""
    from trainjob.train.loop import Loop

    class Timed(Loop):
        def _save(self) -> None:
            start = time.perf_counter()
            super()._save()
            waits.append(time.perf_counter() - start)

    settings = dataclasses.replace(context.settings, checkpoint_every=updates)
    train = turns.ours(context._replace(settings=settings), updates - 1, Timed)

    def train_and_wait(count: int) -> None:
        train(count)
        context.writer.finish()

    return train_and_wait


if __name__ == "__main__":
    main()
