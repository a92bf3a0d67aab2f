"""What a weight update costs here, beside a hand-written torch DDP loop: same net, batches and order, in one run.

    python tests/bench/overhead.py [--instances 2] [--rounds 30] [--engine ddp]

The two take turns of some updates each in the same processes, so that whatever else the machine does meets both. The
figure is the median over turns, and the ratio is the median of the turns' ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "unit/train"), str(TESTS.parent)]

import runs_at_work  # noqa: E402 - a helper of the tests, found by the path above

NETS = {  # width, hidden layers, updates a turn
    "40 k parameters": (100, 3, 200),
    "7.9 M parameters": (500, 31, 12),
}
MICRO_BATCH = 32


def main() -> None:
    asked = parse()
    if asked.folder:
        one_rank(Path(asked.folder), asked)
    for name, (width, layers, updates) in NETS.items():
        results = measure(asked, width, layers, updates)
        ratio = statistics.median(ours / hand for hand, ours in results)
        hand, ours = (statistics.median(column) * 1e3 for column in zip(*results, strict=True))
        print(f"{name:18} hand-written {hand:8.3f} ms   trainjob {ours:8.3f} ms   ratio {ratio:.3f}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--engine", default="ddp")
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--updates", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(asked, width: int, layers: int, updates: int) -> list:
    with tempfile.TemporaryDirectory() as folder:
        paths = runs_at_work.make_run(
            Path(folder) / "run",
            task="ffnet-toy",
            task_options={"width": width, "layers": layers},
            instances=asked.instances,
            engine=asked.engine if asked.instances > 1 else "single",
            micro_batch=MICRO_BATCH,
            updates=10**9,
            schedule="constant",
            learning_rate=0.0001,
        )
        options = ["--folder", paths.folder, "--rounds", asked.rounds, "--updates", updates]
        command = [sys.executable, __file__, *map(str, options)]
        codes = runs_at_work.finish(runs_at_work.start(paths, asked.instances, command=command), 600)
        assert codes == [0] * asked.instances, runs_at_work.log(paths)
        return json.loads((paths.folder / "results.json").read_text())


def one_rank(folder: Path, asked) -> None:
    from trainjob.contract import job
    from trainjob.contract.paths import RunPaths
    from trainjob.train import world as worlds
    from trainjob.train.opening import Run, open_stage
    from trainjob.train.stalling import Watch

    paths = RunPaths(folder)
    world = worlds.join(worlds.place(os.environ), os.environ, 600)
    watch = Watch(paths, world, 1, 600)
    stage, _ = open_stage(Run(paths, job.read(paths.job).train, 1, world, os.environ, watch))
    hand, update, results = HandWritten(stage, world), 0, []
    for turn in range(-2, asked.rounds):
        of_hand = timed(world, lambda: hand.train(asked.updates))
        of_ours = timed(world, lambda start=update: ours(stage, start, start + asked.updates))
        update += asked.updates
        if turn >= 0:
            results.append((of_hand / asked.updates, of_ours / asked.updates))
    if world.rank == 0:
        (folder / "results.json").write_text(json.dumps(results))
    sys.stdout.flush()
    os._exit(0)


def timed(world, work) -> float:
    world.from_first(0)
    start = time.perf_counter()
    work()
    world.from_first(0)
    return time.perf_counter() - start


def ours(stage, start: int, end: int) -> None:
    """Our loop with all that it does on the way: metrics, progress, requests to stop, averaged loss."""
    from trainjob.train.loop import Loop

    loop = Loop(stage._replace(end=end), start)
    loop._save_durably = lambda: None  # the checkpoint at the end is no part of an update
    loop.run()


class HandWritten:
    """The loop that the tutorials teach, on batches in memory, with nothing around it."""

    def __init__(self, stage, world) -> None:
        import torch
        from torch import nn

        from trainjob.train.batches import blocks

        self.model = stage.engine.parts.task.build_model()
        if world.size > 1:
            self.model = nn.parallel.DistributedDataParallel(self.model, gradient_as_bucket_view=True)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.0001, momentum=0.9)
        self.loss = nn.functional.mse_loss
        made = blocks(stage.train, stage.counts, world.rank, 0, stage.counts.updates_per_epoch)
        self.batches = [(block.inputs.clone(), block.targets.clone()) for block in made]

    def train(self, updates: int) -> None:
        for number in range(updates):
            inputs, targets = self.batches[number % len(self.batches)]
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.loss(self.model(inputs), targets)
            loss.backward()
            self.optimizer.step()


if __name__ == "__main__":
    main()
