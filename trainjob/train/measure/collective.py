"""Measures all-reduce by size in three ways: tensor by tensor, in one flat buffer, and in buckets.

    python -m trainjob.train.measure.collective --tensors 32 --megabytes 0.004 1 64 --bucket-mb 1 25 -- RUN_DIR

Runs on every rank. Rank 0 writes measurement.json: one row for each size and way, and one for each
size of bucket.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch
import torch.distributed as dist

from trainjob.contract.paths import RunPaths
from trainjob.records.measures import write_measurement
from trainjob.train import stopping
from trainjob.train import world as worlds
from trainjob.train.world import World

_BUCKET_MB = 25.0  # torch DDP's own default
_WARM_UP, _LEAST_REPEATS = 3, 7
_BUDGET_S = 2.0  # for one size and way


def main(arguments: Sequence[str]) -> int:
    """Measure every size and way; return 0."""
    options = _parse(arguments)
    world = worlds.join(worlds.place(os.environ), os.environ, 600.0)
    buckets = [("bucketed", size) for size in options.bucket_mb]
    ways = [("one by one", None), ("flat", None), *buckets]
    rows = [
        _row(world, way, bucket_mb, size_mb, options.tensors)
        for size_mb in options.megabytes
        for way, bucket_mb in ways
    ]
    if world.rank == 0:
        write_measurement(RunPaths(options.run_dir), {"world_size": world.size, "rows": rows})
    world.close()
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="collective")
    parser.add_argument("--megabytes", type=float, nargs="+", default=[0.004, 0.064, 1.0, 16.0, 64.0])
    parser.add_argument("--tensors", type=int, default=32)
    parser.add_argument("--bucket-mb", type=float, nargs="+", default=[_BUCKET_MB])
    parser.add_argument("run_dir", metavar="RUN_DIR")
    return parser.parse_args(arguments)


def _row(world: World, way: str, bucket_mb: Optional[float], size_mb: float, tensors: int) -> Dict[str, Any]:
    gradients = _gradients(size_mb, tensors, world.device)
    if bucket_mb is None:
        seconds = _median_seconds(lambda: WAYS[way](gradients))
    else:
        limit = int(bucket_mb * 1024 * 1024)
        seconds = _median_seconds(lambda: _bucketed(gradients, limit))
    total = sum(gradient.numel() * gradient.element_size() for gradient in gradients)
    return {
        "way": way,
        "bytes": total,
        "tensors": tensors,
        "seconds": seconds,
        "bytes_per_s": total / seconds,
        "bucket_mb": bucket_mb,
    }


def _gradients(size_mb: float, tensors: int, device: torch.device) -> List[torch.Tensor]:
    elements = max(1, int(size_mb * 1e6 / 4 / tensors))
    return [torch.zeros(elements, device=device) for _ in range(tensors)]


def _median_seconds(reduce_all: Callable[[], None]) -> float:
    for _ in range(_WARM_UP):
        reduce_all()
    taken: List[float] = []
    # Every rank must make the same number of calls, so rank 0's first measurement decides how many fit.
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


def _one_by_one(gradients: List[torch.Tensor]) -> None:
    for gradient in gradients:
        dist.all_reduce(gradient)


def _bucketed(gradients: List[torch.Tensor], limit_bytes: int) -> None:
    under_way = [(bucket, *_begin(bucket)) for bucket in _buckets(gradients, limit_bytes)]
    for bucket, joined, work in under_way:
        work.wait()
        _scatter(bucket, joined)


def _reduce_joined(gradients: List[torch.Tensor]) -> None:
    joined, work = _begin(gradients)
    work.wait()
    _scatter(gradients, joined)


def _begin(gradients: List[torch.Tensor]) -> Any:
    joined = torch.cat([gradient.reshape(-1) for gradient in gradients])
    return joined, dist.all_reduce(joined, async_op=True)


def _scatter(gradients: List[torch.Tensor], joined: torch.Tensor) -> None:
    offset = 0
    for gradient in gradients:
        gradient.copy_(joined[offset : offset + gradient.numel()].view_as(gradient))
        offset += gradient.numel()


def _buckets(gradients: List[torch.Tensor], limit_bytes: int) -> List[List[torch.Tensor]]:
    buckets: List[List[torch.Tensor]] = [[]]
    size = 0
    for gradient in gradients:
        length = gradient.numel() * gradient.element_size()
        if buckets[-1] and size + length > limit_bytes:
            buckets.append([])
            size = 0
        buckets[-1].append(gradient)
        size += length
    return buckets


WAYS: Dict[str, Callable[[List[Any]], None]] = {"one by one": _one_by_one, "flat": _reduce_joined}

if __name__ == "__main__":
    stopping.leave(main(sys.argv[1:]))
