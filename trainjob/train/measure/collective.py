"""Measures all-reduce by size in three ways: tensor by tensor, in one flat buffer, and in buckets.

    python -m trainjob.train.measure.collective --tensors 32 --megabytes 0.004 1 64 --bucket-mb 1 25 -- RUN_DIR

Runs on every rank. Rank 0 writes measurement.json: one row for each size and way, and one for each
size of bucket.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import statistics
import sys
from typing import Callable, Dict, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

from trainjob.contract import clock
from trainjob.contract.paths import RunPaths
from trainjob.records.measures import write_measurement
from trainjob.train import stopping
from trainjob.train import world as worlds

_BUCKET_MB = 25.0  # torch DDP's own default
_WARM_UP, _LEAST_REPEATS = 3, 7
_BUDGET_S = 2.0  # for one size and way


def main(arguments: Sequence[str]) -> int:
    """Measure every size and way; return 0."""
    parser = argparse.ArgumentParser(prog="collective")
    parser.add_argument("--megabytes", type=float, nargs="+", default=[0.004, 0.064, 1.0, 16.0, 64.0])
    parser.add_argument("--tensors", type=int, default=32)
    parser.add_argument("--bucket-mb", type=float, nargs="+", default=[_BUCKET_MB])
    parser.add_argument("run_dir", metavar="RUN_DIR")
    options = parser.parse_args(arguments)
    world = worlds.join(worlds.place(os.environ), os.environ, 600.0)
    ways: List[Tuple[str, Optional[float]]] = [("one by one", None), ("flat", None)]
    ways += [("bucketed", size) for size in options.bucket_mb]
    rows: List[Dict[str, object]] = []
    for size_mb in options.megabytes:
        elements = max(1, int(size_mb * 1e6 / 4 / options.tensors))
        for way, bucket_mb in ways:
            gradients = [torch.zeros(elements, device=world.device) for _ in range(options.tensors)]
            total = sum(gradient.numel() * gradient.element_size() for gradient in gradients)
            limit = math.inf if bucket_mb is None else int(bucket_mb * 1024 * 1024)
            reduce_all = _one_by_one if way == "one by one" else functools.partial(_bucketed, limit_bytes=limit)
            seconds = _median_seconds(functools.partial(reduce_all, gradients))
            facts = {"way": way, "bytes": total, "tensors": options.tensors, "seconds": seconds}
            rows.append({**facts, "bytes_per_s": total / seconds, "bucket_mb": bucket_mb})
    if world.rank == 0:
        write_measurement(RunPaths(options.run_dir), {"world_size": world.size, "rows": rows})
    world.close()
    return 0


def _median_seconds(reduce_all: Callable[[], None]) -> float:
    def seconds() -> float:
        dist.barrier()
        start = clock.monotonic()
        reduce_all()
        return clock.monotonic() - start

    for _ in range(_WARM_UP):
        reduce_all()
    # Every rank must make the same number of calls, so rank 0's first measurement decides how many fit.
    repeats = torch.tensor([max(_LEAST_REPEATS, int(_BUDGET_S / max(1e-6, seconds())))])
    dist.broadcast(repeats, 0)
    return statistics.median([seconds() for _ in range(min(int(repeats), 1000))])


def _one_by_one(gradients: List[torch.Tensor]) -> None:
    for gradient in gradients:
        dist.all_reduce(gradient)


def _bucketed(gradients: List[torch.Tensor], limit_bytes: float) -> None:
    """Reduce all gradients in buckets of at most `limit_bytes`, which are in progress together."""
    buckets: List[List[torch.Tensor]] = [[]]
    size = 0
    for gradient in gradients:
        length = gradient.numel() * gradient.element_size()
        if buckets[-1] and size + length > limit_bytes:
            buckets.append([])
            size = 0
        buckets[-1].append(gradient)
        size += length
    under_way = []
    for bucket in buckets:
        joined = torch.cat([gradient.reshape(-1) for gradient in bucket])
        under_way.append((bucket, joined, dist.all_reduce(joined, async_op=True)))
    for bucket, joined, work in under_way:
        work.wait()
        offset = 0
        for gradient in bucket:
            gradient.copy_(joined[offset : offset + gradient.numel()].view_as(gradient))
            offset += gradient.numel()


if __name__ == "__main__":
    stopping.leave(main(sys.argv[1:]))
