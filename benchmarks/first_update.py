"""Prints how long it takes from a typed command to the first update, beside torchrun.

    python -m benchmarks.first_update [--ranks 2] [--rounds 5]

One DDP script on CPUs, started by `torchrun` and by `trainjob submit` in turns, and the medians with their ratio.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCRIPT = """\
import sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters())
torch.nn.functional.cross_entropy(model(torch.randn(16, 64)), torch.zeros(16, dtype=torch.long)).backward()
optimizer.step()
if dist.get_rank() == 0:
    open(sys.argv[1], "w").write(repr(time.time()))
dist.destroy_process_group()
"""


def main() -> None:
    """Measure, and print one line a launcher."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "train.py").write_text(SCRIPT)
        first = folder / "first"
        script = ["train.py", str(first)]
        ranks = str(asked.ranks)
        commands = {
            "torchrun": [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", ranks, *script],
            "trainjob": [
                *[sys.executable, "-m", "trainjob", "submit", "--cluster", "local", "--instances", ranks],
                *["--follow", "--again", "--", sys.executable, *script],
            ],
        }
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(asked.rounds + 1):
            for name, command in commands.items():
                seconds[name].append(until_first_update(command, folder, first))
    # The first round finds torch on the disk, and the others in memory.
    medians = {name: statistics.median(taken[1:]) for name, taken in seconds.items()}
    print(f"{asked.ranks} ranks, load average {os.getloadavg()[0]:.1f}")
    for name, median in medians.items():
        print(f"{name:10}{median:7.2f} s  {median / medians['torchrun']:.2f} of torchrun's")


def until_first_update(command: list[str], folder: Path, first: Path) -> float:
    """Return the seconds from the start of `command` to the script's first update."""
    environ = {**os.environ, "XDG_DATA_HOME": str(folder / "data"), "OMP_NUM_THREADS": "1"}
    first.unlink(missing_ok=True)
    began = time.time()
    # Its exit code says nothing: torch 2.13 may abort when a script has ended.
    ended = subprocess.run(command, cwd=folder, env=environ, check=False, capture_output=True, text=True)
    if not first.exists():
        sys.exit(f"{' '.join(command)} made no update: {ended.stderr[-2000:]}")
    return float(first.read_text()) - began


if __name__ == "__main__":
    main()
