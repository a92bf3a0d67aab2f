"""What checkpoints cost while training goes on: turns of updates with checkpoints beside turns without, in one run.

    python tests/bench/checkpoint.py [--rounds 5] [--updates 100]

A turn makes four checkpoints. Their writing goes on behind the training, so the last one's end is waited for outside.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "unit/train"), str(TESTS / "bench"), str(TESTS.parent)]

import runs_at_work  # noqa: E402 - a helper of the tests, found by the path above
from overhead import MICRO_BATCH, NETS  # noqa: E402 - beside this file

_CHECKPOINTS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=100)
    asked = parser.parse_args()
    for name, (width, layers, _) in NETS.items():
        with tempfile.TemporaryDirectory() as folder:
            turns = measure(Path(folder) / "run", width, layers, asked.rounds, asked.updates)
        ratio = statistics.median(saving / plain for plain, saving in turns)
        plain, saving = (
            1e3 * statistics.median(column) / (_CHECKPOINTS * asked.updates) for column in zip(*turns, strict=True)
        )
        print(f"{name:18} without {plain:8.3f} ms   one in {asked.updates} {saving:8.3f} ms   ratio {ratio:.3f}")


def measure(folder: Path, width: int, layers: int, rounds: int, updates: int) -> list:
    import torch

    from trainjob.contract import job
    from trainjob.train import world as worlds
    from trainjob.train.opening import Run, open_stage
    from trainjob.train.stalling import Watch

    torch.set_num_threads(1)  # as one rank of several has
    options = {"width": width, "layers": layers}
    paths = runs_at_work.make_run(
        folder, task="ffnet-toy", task_options=options, micro_batch=MICRO_BATCH, updates=10**9, schedule="constant"
    )
    told = {"TRAINJOB_ATTEMPT": "1", "TRAINJOB_RANK_DEVICE": "cpu"}
    world = worlds.join(worlds.place(told), told, 600)
    stage, _ = open_stage(Run(paths, job.read(paths.job).train, 1, world, told, Watch(paths, world, 1, 600)))
    start, turns = 0, []
    for turn in range(-1, rounds):
        found = []
        for every in (0, updates):
            found.append(timed(stage, every, start, _CHECKPOINTS * updates))
            start += _CHECKPOINTS * updates
        if turn >= 0:
            turns.append(tuple(found))
    return turns


def timed(stage, every: int, start: int, updates: int) -> float:
    """Return the seconds of one turn. Both end with an update more, which is where a checkpoint may fall before."""
    from trainjob.train.loop import Loop

    settings = dataclasses.replace(stage.settings, checkpoint_every=every)
    loop = Loop(stage._replace(settings=settings, end=start + updates + 1), start)
    loop._save_durably = lambda: None  # the checkpoint at the end is no part of an update
    began = time.perf_counter()
    loop.run()
    took = time.perf_counter() - began
    stage.writer.finish()
    return took


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
