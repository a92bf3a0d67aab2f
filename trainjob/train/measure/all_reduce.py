"""One rank of the node check's all-reduce on GPUs: sums numbers known beforehand, verifies the sum, measures pairs.

    python -m trainjob.train.measure.all_reduce '[[[0, 8]]]'

Started by the launcher (nodecheck/all_reduce.py) before the ranks are. Prints an object a line: that it is ready, and,
after a line on standard input, what it has seen. The argument holds rounds of pairs of ranks.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Dict, List, Sequence, Tuple

import torch
import torch.distributed as dist

from trainjob.contract import clock
from trainjob.contract.errors import UserError
from trainjob.train import stopping
from trainjob.train import world as worlds
from trainjob.train.world import World

# A float32 holds these exactly, and their sum over 4,096 ranks.
_NUMBERS, _MODULUS = 1 << 18, 2039
_PAIR_BYTES, _REPEATS = 32 << 20, 3
_LIMIT_S = 150.0


def main(arguments: Sequence[str]) -> int:
    """Reduce, verify and measure; return 0, also where another rank has gone."""
    place = worlds.place(os.environ)
    torch.ones(1, device=place.device).sum().item()
    _print({"is_ready": True})
    sys.stdin.readline()  # all ranks are ready
    try:
        world = worlds.join(place, os.environ, _LIMIT_S)
        wrong, has_wrong_sum = verify(world)
        seen = {"wrong": wrong, "has_wrong_sum": has_wrong_sum, "mb_per_s": _pairs(world, json.loads(arguments[0]))}
    except (RuntimeError, UserError) as error:
        lost = str(error) if isinstance(error, UserError) else worlds.describe_lost_peer(error, place.rank)
        if lost is None:
            raise
        _print({"lost": lost})
        return 0
    _print(seen)
    world.close()
    return 0


def verify(world: World) -> Tuple[List[int], bool]:
    """Return the ranks whose numbers arrive wrong, and whether their sum is wrong."""
    total = contribution(world.rank, world.device)
    dist.all_reduce(total)
    expected = sum(contribution(rank, torch.device("cpu"), torch.float64) for rank in range(world.size))
    if torch.equal(total.cpu().double(), expected):  # type: ignore[arg-type] # a world has ranks
        return [], False
    # Whose numbers they are shows only when each rank's arrive by themselves.
    parts = [torch.empty_like(total) for _ in range(world.size)]
    dist.all_gather(parts, contribution(world.rank, world.device))
    cpu = torch.device("cpu")
    return [rank for rank, part in enumerate(parts) if not torch.equal(part.cpu(), contribution(rank, cpu))], True


def contribution(rank: int, device: torch.device, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return the numbers that a rank adds: whole ones."""
    return ((torch.arange(_NUMBERS, device=device) + rank) % _MODULUS + 1).to(dtype)


def _pairs(world: World, rounds: Sequence[Sequence[Sequence[int]]]) -> List[Tuple[int, int, float]]:
    data = torch.zeros(_PAIR_BYTES, dtype=torch.uint8, device=world.device)
    measured: List[Tuple[int, int, float]] = []
    for one, other in (pair for pairs in rounds for pair in pairs if world.rank in pair):
        _send(world, one, other, data)  # connections are made when they are used first
        _wait(world)
        began = clock.monotonic()
        for _ in range(_REPEATS):
            _send(world, one, other, data)
        _wait(world)
        if world.rank == other:
            measured.append((one, other, _REPEATS * _PAIR_BYTES / 1e6 / (clock.monotonic() - began)))
    return measured


def _send(world: World, one: int, other: int, data: torch.Tensor) -> None:
    if world.rank == one:
        dist.send(data, other)
    else:
        dist.recv(data, one)


def _wait(world: World) -> None:
    if world.device.type == "cuda":
        torch.cuda.synchronize(world.device)


def _print(seen: Dict[str, object]) -> None:
    sys.stdout.write(json.dumps(seen) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        stopping.leave(main(sys.argv[1:]))
    except UserError as error:
        sys.exit("trainjob: %s" % error)
