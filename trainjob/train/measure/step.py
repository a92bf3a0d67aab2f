"""Measures what makes an update faster: each variation in turns with the plain update, on samples in memory.

    python -m trainjob.train.measure.step --rounds 15 --round-s 0.3 --variations compile fused -- RUN_DIR

Runs on every rank. In a round, the plain engine and one variation make the same number of updates, one after the other,
so that a machine that slows down for a while slows down both. Rank 0 writes measurement.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from typing import Any, Dict, List, Mapping, Sequence

from trainjob.contract.errors import UserError
from trainjob.records.measures import PLAIN_STEP, STEP_VARIATIONS
from trainjob.train import stopping
from trainjob.train.engines.base import Engine, Flags
from trainjob.train.measure.ranks import measure
from trainjob.train.opening import Run, build_engine, open_task
from trainjob.train.samples.batches import blocks

_WARM_UP_UPDATES = 3  # the first compiles, and allocates memory
_COMPILING_S = 1800.0


def main(arguments: Sequence[str]) -> int:
    """Measure every variation; return 0."""
    options = _parse(arguments)

    def work(run: Run) -> Dict[str, Any]:
        rows = _Turns(run).rows(options.variations, options.rounds, options.round_s)
        return {"world_size": run.world.size, "rows": rows}

    return measure(options.run_dir, work, _COMPILING_S)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="step")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--round-s", type=float, default=0.3, help="length of either half of a round")
    parser.add_argument("--variations", nargs="+", default=list(STEP_VARIATIONS))
    parser.add_argument("run_dir", metavar="RUN_DIR")
    return parser.parse_args(arguments)


class _Turns:
    """Updates of one job, by engines that differ in how they make them."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._opened = open_task(run)
        upcoming = blocks(self._opened.train, self._opened.counts, run.world.rank, 0, 1)
        self._block = next(upcoming)
        upcoming.close()

    def rows(self, names: Sequence[str], rounds: int, round_s: float) -> List[Dict[str, Any]]:
        """Return for each variation the seconds of an update, round by round, and of the plain one beside it."""
        plain = self._engine({})
        updates = self._run.world.from_first(max(1, int(round_s / self._seconds(plain, _WARM_UP_UPDATES))))
        return [self._row(name, plain, updates, rounds) for name in names]

    def _row(self, name: str, plain: Engine, updates: int, rounds: int) -> Dict[str, Any]:
        row: Dict[str, Any] = {"name": name, "plain_s": [], "varied_s": [], "why": ""}
        try:
            varied = self._engine(STEP_VARIATIONS[name])
        except UserError as error:  # the same on all ranks: it depends on torch and the model
            row["why"] = error.text
            return row
        for number in range(rounds):
            # In alternating order: the second of a pair may find warmer caches.
            for key, engine in [("plain_s", plain), ("varied_s", varied)][:: 1 if number % 2 else -1]:
                row[key].append(self._seconds(engine, updates))
        return row

    def _engine(self, changes: Mapping[str, Any]) -> Engine:
        settings = dataclasses.replace(self._run.settings, **{**PLAIN_STEP, **changes})
        engine = build_engine(self._run._replace(settings=settings), self._opened)
        self._seconds(engine, _WARM_UP_UPDATES)
        return engine

    def _seconds(self, engine: Engine, updates: int) -> float:
        """Return the seconds that each update takes, waiting for the outcome of each."""
        start = time.perf_counter()
        for _ in range(updates):
            engine.train(self._block, Flags()).read()
        return (time.perf_counter() - start) / updates


if __name__ == "__main__":
    stopping.leave(main(sys.argv[1:]))
