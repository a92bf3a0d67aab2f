"""All-reduce by size, three ways: tensor by tensor, all in one flat buffer, and in buckets.

    python -m trainjob.train.measure.collective --tensors 32 --megabytes 0.004 1 64 -- RUN_DIR

Started by launch.py on every rank. Rank 0 writes measurement.json: one row a size and a way.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence

import torch
import torch.distributed as dist

from trainjob.contract.files import write_json
from trainjob.train import world as worlds

MEASUREMENT = "measurement.json"
_BUCKET_BYTES = 25 * 1024 * 1024  # torch DDP's own default
_WARM_UP, _LEAST_REPEATS = 3, 7
_BUDGET_S = 2.0  # of one size and way


def main(arguments: Sequence[str]) -> int:
    """Measure every size and way; return 0."""
    asked = _parse(arguments)
    here = worlds.place(os.environ)
    world = worlds.join(here, os.environ, 600.0)
    rows = [
        _row(world, way, size_mb, asked.tensors)
        for size_mb in asked.megabytes
        for way in ("one by one", "flat", "bucketed")
    ]
    if world.rank == 0:
        write_json(Path(asked.run_dir) / MEASUREMENT, {"world_size": world.size, "rows": rows})
    world.close()
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="collective")
    parser.add_argument("--megabytes", type=float, nargs="+", default=[0.004, 0.064, 1.0, 16.0, 64.0])
    parser.add_argument("--tensors", type=int, default=32)
    parser.add_argument("run_dir", metavar="RUN_DIR")
    return parser.parse_args(arguments)


def _row(world: Any, way: str, size_mb: float, tensors: int) -> Dict[str, Any]:
    gradients = _gradients(size_mb, tensors, world.device)
    seconds = _median_seconds(lambda: WAYS[way](gradients))
    total = sum(gradient.numel() * gradient.element_size() for gradient in gradients)
    return {
        "way": way,
        "bytes": total,
        "tensors": tensors,
        "seconds": seconds,
        "bytes_per_s": total / seconds,
    }


def _gradients(size_mb: float, tensors: int, device: Any) -> List[Any]:
    elements = max(1, int(size_mb * 1e6 / 4 / tensors))
    return [torch.zeros(elements, device=device) for _ in range(tensors)]


def _median_seconds(reduce_all: Callable[[], None]) -> float:
    for _ in range(_WARM_UP):
        reduce_all()
    taken: List[float] = []
    # Every rank must make the same number of calls: rank 0's first measured call decides how many fit.
    repeats = _agreed(max(_LEAST_REPEATS, int(_BUDGET_S / max(1e-6, _seconds(reduce_all)))))
    for _ in range(min(repeats, 1000)):
        taken.append(_seconds(reduce_all))
    return statistics.median(taken)


def _seconds(reduce_all: Callable[[], None]) -> float:
    dist.barrier()
    start = time.perf_counter()
    reduce_all()
    return time.perf_counter() - start


def _agreed(repeats: int) -> int:
    number = torch.tensor([repeats])
    dist.broadcast(number, 0)
    return int(number)


def _one_by_one(gradients: List[Any]) -> None:
    for gradient in gradients:
        dist.all_reduce(gradient)


def _flat(gradients: List[Any]) -> None:
    _reduce_joined(gradients)


def _bucketed(gradients: List[Any]) -> None:
    under_way = [(bucket, *_begin(bucket)) for bucket in _buckets(gradients)]
    for bucket, joined, work in under_way:
        work.wait()
        _scatter(bucket, joined)


def _reduce_joined(gradients: List[Any]) -> None:
    joined, work = _begin(gradients)
    work.wait()
    _scatter(gradients, joined)


def _begin(gradients: List[Any]) -> Any:
    joined = torch.cat([gradient.reshape(-1) for gradient in gradients])
    return joined, dist.all_reduce(joined, async_op=True)


def _scatter(gradients: List[Any], joined: Any) -> None:
    offset = 0
    for gradient in gradients:
        gradient.copy_(joined[offset : offset + gradient.numel()].view_as(gradient))
        offset += gradient.numel()


def _buckets(gradients: List[Any]) -> List[List[Any]]:
    buckets: List[List[Any]] = [[]]
    size = 0
    for gradient in gradients:
        length = gradient.numel() * gradient.element_size()
        if buckets[-1] and size + length > _BUCKET_BYTES:
            buckets.append([])
            size = 0
        buckets[-1].append(gradient)
        size += length
    return buckets


WAYS: Dict[str, Callable[[List[Any]], None]] = {"one by one": _one_by_one, "flat": _flat, "bucketed": _bucketed}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
