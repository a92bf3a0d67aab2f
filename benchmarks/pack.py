"""How long a GPU is free while an element of a packed array waits.

    python -m benchmarks.pack [ELEMENTS [SHORTEST LONGEST]]

A private Slurm of two nodes with four stand-in GPUs each, and one job whose steps are ELEMENTS (64) that take SHORTEST
(4) to LONGEST (12) seconds, drawn with seed 0. Each element writes down when it begins and ends, and on which GPU of
which node. A gap is the time from an end on a GPU to the next begin there, or to the last begin of any element: from
then on none waits.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from benchmarks.reserve import TRAINJOB, Client
from trainjob.rehearse.slurm.description import Description, SlurmPartition
from trainjob.rehearse.slurm.private import private_slurm

_NODES, _GPUS, _BAR_S, _POLL_S, _LIMIT_S = 2, 4, 5.0, 1.0, 900.0
_TELL = """\
import json, os, sys, time
began = time.time()
time.sleep(float(os.environ["FOR_S"]))
where = os.environ["SLURMD_NODENAME"] + " GPU " + os.environ["CUDA_VISIBLE_DEVICES"]
print(json.dumps([where, began, time.time()]))
"""


class Told(NamedTuple):
    """What an element has written down: its GPU, and when it began and ended, in seconds since 1970."""

    where: str
    began: float
    ended: float


def run(client: Client, lasts_s: list[float]) -> list[Told]:
    """Return what the elements have written down, which take so many seconds."""
    nodes = {"count": _NODES, "cpus": 8, "memory_gb": 16, "accelerator": "gpu", "accelerators": _GPUS}
    path = client.folder / "clusters/here.yaml"
    path.write_text(json.dumps({**json.loads(path.read_text()), "nodes": nodes, "node_check": False}))
    (client.folder / "tell.py").write_text(_TELL)
    (client.folder / "sweep.yaml").write_text(json.dumps([{"env": {"FOR_S": f"{one:.1f}"}} for one in lasts_s]))
    asked = ("--cluster", "here", "--instances", "1", "--pack", str(_NODES), "--sweep", "sweep.yaml", "--json")
    submitted = client.call(TRAINJOB, "submit", *asked, "--", "python", "tell.py")
    folder, deadline = client.folder / "runs" / json.loads(submitted)["id"], time.monotonic() + _LIMIT_S
    while client.jobs() and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    logs = [path.read_text().splitlines()[-1] for path in folder.glob("tasks/*/logs/rank-0000.log")]
    told = [json.loads(line) for line in logs if line.startswith("[")]
    return [Told(*one) for one in told]


def gaps(told: list[Told]) -> list[float]:
    """Return the seconds of each gap, longest last."""
    last, found = max(one.began for one in told), list[float]()
    for where in {one.where for one in told}:
        here = sorted((one.began, one.ended) for one in told if one.where == where)
        found += [after - ended for (_, ended), (after, _) in pairwise(here)]
        found += [last - here[-1][1]] if here[-1][1] < last else []
    return sorted(found)


def main(count: int, shortest_s: float, longest_s: float) -> None:
    drawn = random.Random(0)
    lasts_s = [drawn.uniform(shortest_s, longest_s) for _ in range(count)]
    partition = SlurmPartition("gpu")
    description = Description(
        nodes=_NODES, cpus=8, memory_mb=16 * 1024, gres="gpu", gres_count=_GPUS, partitions=(partition,)
    )
    with tempfile.TemporaryDirectory() as name, private_slurm(description) as slurm:
        told = run(Client(slurm, Path(name)), lasts_s)
    found = gaps(told)
    took_s = max(one.ended for one in told) - min(one.began for one in told)
    print(f"{len(told)} of {count} elements have run on {len({one.where for one in told})} GPUs in {took_s:.0f} s")
    print(f"{len(found)} gaps, median {statistics.median(found):.1f} s, longest {found[-1]:.1f} s")
    print(f"{sum(one > _BAR_S for one in found)} gaps of more than {_BAR_S:g} s", flush=True)


if __name__ == "__main__":
    words = [float(word) for word in sys.argv[1:]]
    chosen = words + [64, 4, 12][len(words) :]
    main(int(chosen[0]), *chosen[1:])
