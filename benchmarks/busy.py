"""The speed of one instance on a quiet machine and on a busy one, by how long OpenMP's threads spin while waiting.

    python benchmarks/busy.py [--seconds 8] [--rounds 2] [--task digits-cnn] [--micro-batch 16]

Each policy trains the task as the launcher starts it, alone and beside processes that never rest. All take turns, and
the figure is the best of the rounds: whatever else the machine does only makes it smaller. libgomp spins 300,000 times
where nothing is set. The row "launch" is what the launcher chooses by what runs when it starts, "planned" what the plan
adds to it. The last lines are what it chose there, and that row by the best of all.
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
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support import runs_at_work
from trainjob.cluster.job import Job
from trainjob.contract.paths import RunPaths
from trainjob.planning import work
from trainjob.records import metrics, usage

POLICIES = {
    "spins 300,000 (unset)": {"GOMP_SPINCOUNT": "300000", "OMP_WAIT_POLICY": "ACTIVE", "KMP_BLOCKTIME": "200"},
    "spins 10,000": {"GOMP_SPINCOUNT": "10000"},
    "spins 3,000": {"GOMP_SPINCOUNT": "3000"},
    "spins 1,000": {"GOMP_SPINCOUNT": "1000"},
    "spins 100": {"GOMP_SPINCOUNT": "100"},
    "sleeps": {"OMP_WAIT_POLICY": "PASSIVE"},
    "launch": {},
    "one thread": {"OMP_NUM_THREADS": "1"},
}
BUSY = [sys.executable, "-c", "while True: pass"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8, help="of each training")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--task", default="digits-cnn")
    parser.add_argument("--data", help="synthetic, where the task's own is not here")
    parser.add_argument("--samples", type=int, help="of synthetic data")
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--beside", type=int, default=1, help="busy processes")
    options = parser.parse_args()
    policies = {**POLICIES, "planned": work.threads(Job(task=options.task, micro_batch=options.micro_batch), "CPU")}
    trained = {name: getattr(options, name) for name in ("task", "micro_batch", "data", "samples")}
    trained = {name: value for name, value in trained.items() if value is not None}
    best: dict[tuple[str, int], tuple[float, str]] = {}
    for _ in range(options.rounds):
        for beside in (0, options.beside):
            for name, environ in policies.items():
                trial = beside_others(beside, environ, options.seconds, trained)
                best[name, beside] = max(trial, best.get((name, beside), trial))
    print(f"samples/s of {options.task} on {len(os.sched_getaffinity(0))} cores{'quiet':>13}{'busy':>9}")
    for name in policies:
        print(f"  {name:<38}{best[name, 0][0]:>13,.0f}{best[name, options.beside][0]:>9,.0f}")
    (quiet, chosen), (busy, chosen_beside) = best["planned", 0], best["planned", options.beside]
    print(f"  {'planned spins':<38}{chosen:>13}{chosen_beside:>9}")
    most, most_beside = (max(best[name, beside][0] for name in policies) for beside in (0, options.beside))
    print(f"  {'planned ÷ the best':<38}{quiet / most:>13.2f}{busy / most_beside:>9.2f}")
    print(f"  {'load average':<38}{os.getloadavg()[0]:>13.1f}")


def beside_others(count: int, environ: dict[str, str], seconds: float, trained: dict[str, Any]) -> tuple[float, str]:
    others = [subprocess.Popen(BUSY) for _ in range(count)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            return trial_of(Path(folder), environ, seconds, trained)
    finally:
        for other in others:
            other.kill()
            other.wait()


def trial_of(folder: Path, environ: dict[str, str], seconds: float, trained: dict[str, Any]) -> tuple[float, str]:
    """Return the median of samples/s over the logging points of a training of so many seconds, and GOMP_SPINCOUNT."""
    paths = RunPaths(runs_at_work.make_run(folder / "run", updates=10**6, log_every=2, **trained).folder)
    (paths.folder / "code").mkdir(exist_ok=True)
    rank = [sys.executable, "-m", "trainjob.train", str(paths.folder)]
    launch = [sys.executable, "-m", "trainjob.launch", "--launcher", "local", str(paths.folder), "--", *rank]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    root = str(Path(__file__).resolve().parents[1])
    running = subprocess.Popen(launch, env={**kept, "PYTHONPATH": root, **environ}, stderr=subprocess.DEVNULL)
    try:
        while not paths.metrics.exists() and running.poll() is None:
            time.sleep(0.05)
        time.sleep(seconds)
    finally:
        running.terminate()
        running.wait()
    rates = [line.samples_per_s for line in metrics.read(paths) if line.samples_per_s is not None]
    if len(rates) < 2:
        sys.exit(f"{len(rates)} logging points in {seconds:g} s: {paths.rank_log(0).read_text()[-1000:]}")
    (first, *_) = usage.lines(paths, 0).new()
    return statistics.median(rates[1:]), first.openmp.get("GOMP_SPINCOUNT", "no")


if __name__ == "__main__":
    main()
