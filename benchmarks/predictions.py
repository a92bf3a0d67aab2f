"""The errors of predictions: runs of three small jobs on 1 to 4 instances, each predicted from those before it.

The first round has nothing to be predicted from, so that five rounds more are 60 predictions. Takes twelve minutes on
two quiet cores. Prints the score of each quantity, and that of each number of instances.

    python -m benchmarks.predictions [ROUNDS] [--folder KEEP]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_WORKS = (
    ("--task", "digits-cnn", "--epochs", "4"),
    ("--task", "ffnet-toy", "--epochs", "4"),
    ("--task", "ffnet-toy", "--epochs", "12", "--micro-batch", "16", "--set", "width=400"),
)
_INSTANCES = (1, 2, 3, 4)
_TRAINJOB = (sys.executable, "-c", "from trainjob.cli.main import main; main()")


def _submissions(rounds: int) -> Iterator[list[str]]:
    """Yield the options of each run; the order of a round changes, so that none profits from its predecessor."""
    shuffled = random.Random(0)
    for _ in range(rounds):
        each = [[*work, "--instances", str(number)] for work in _WORKS for number in _INSTANCES]
        shuffled.shuffle(each)
        yield from each


def _run(folder: Path, words: list[str]) -> str:
    environ = {**os.environ, "XDG_DATA_HOME": str(folder / "data"), "XDG_CONFIG_HOME": str(folder / "config")}
    ended = subprocess.run([*_TRAINJOB, *words], cwd=folder, env=environ, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"trainjob {' '.join(words)}:\n{ended.stdout}{ended.stderr}")
    return ended.stdout


def _line(name: str, compared: list[dict[str, Any]]) -> str:
    errors = sorted(abs(one["error"]) for one in compared)
    within = sum(one["is_within"] for one in compared) / len(compared)
    half = len(errors) // 2
    middle = errors[half] if len(errors) % 2 else (errors[half - 1] + errors[half]) / 2
    return f"{name:<34} {len(compared):4} {100 * within:7.0f} % {100 * middle:9.1f} %"


def _score(folder: Path) -> None:
    stored = {path.parent.name: path for path in (folder / "data/trainjob/runs").glob("*/prediction.json")}
    reports = {run: json.loads(_run(folder, ["report", run, "--json"])) for run in sorted(stored)}
    compared = [{"id": run, **one} for run, report in reports.items() for one in report["predictions"]]
    instances = {run: json.loads(path.read_text())["instances"] for run, path in stored.items()}
    print(f"{'quantity':<34} {'runs':>4} {'in interval':>9} {'median error':>9}")
    for quantity in dict.fromkeys(one["quantity"] for one in compared):
        print(_line(quantity, [one for one in compared if one["quantity"] == quantity]))
    for quantity in ("seconds per update", "run"):
        for number in _INSTANCES:
            of = [one for one in compared if one["quantity"] == quantity and instances.get(one["id"]) == number]
            if of:
                print(_line(f"  {quantity}, {number} instance{'s' * (number > 1)}", of))


def main() -> None:
    """Run all, and print the score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rounds", nargs="?", type=int, default=6)
    parser.add_argument("--folder", type=Path, help="keep the runs there; those that it has predict the new ones")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        begun, loads = time.perf_counter(), []
        for words in _submissions(given.rounds):
            loads.append(os.getloadavg()[0])
            _run(folder, ["submit", "--cluster", "local", *words, "--again", "--follow"])
        minutes = (time.perf_counter() - begun) / 60
        print(
            f"{len(loads)} runs in {minutes:.1f} min on {platform.machine()} with {os.cpu_count()} CPUs; "
            f"load average before a run: {min(loads):.1f} to {max(loads):.1f}\n"
        )
        _score(folder)


if __name__ == "__main__":
    main()
