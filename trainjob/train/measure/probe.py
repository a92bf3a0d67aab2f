"""The script of the jobs of `trainjob cluster accept`. It imports nothing of ours, and torch only if it is there.

    python probe.py look      print what this rank has: node, CPUs, memory, address, device
    python probe.py reduce    the same, then sum over all ranks and measure the bandwidth
    python probe.py hold      wait; on USR1 ask to be started again, and end at once when that has happened
    python probe.py requeue   have Slurm requeue the job, and end at once when that has happened
    python probe.py die       the last rank kills itself, the others wait

Each rank prints lines of JSON after the mark that ACCEPT_MARK names; later lines add to earlier ones.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import signal
import socket
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any, Dict, List

_HOLD_S = 1800.0
_MEET_S = 120  # of the job's five minutes: an error of torch's tells more than the time limit
# Files and variables of container engines. A folder that Apptainer did not build has no /.singularity.d. Enroot, which
# Pyxis starts, keeps its own variables from the container. Shifter's variable is siteEnv in udiRoot.conf.
CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv", "/.singularity.d", "/.lock")
_CONTAINER_VARIABLES = ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "SHIFTER_RUNTIME")
_MATRIX, _REPEATS = 4096, 20
_SMALL_MATRIX = 512  # where a CPU computes
_BYTES = 256 << 20
_SMALL_BYTES = 16 << 20


def main(action: str) -> int:
    """Do what `action` says and return the exit code."""
    return {"look": look, "reduce": reduce, "hold": hold, "requeue": requeue, "die": die}[action]()


def _print(**values: object) -> None:
    sys.stdout.write(os.environ.get("ACCEPT_MARK", "") + json.dumps({"rank": _rank(), **values}) + "\n")
    sys.stdout.flush()


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))


def look() -> int:
    """Print what this rank has."""
    _print(**_facts())
    return 0


def _facts() -> Dict[str, Any]:
    facts: Dict[str, Any] = {
        "local_rank": int(os.environ.get("LOCAL_RANK", "0")),
        "node": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        "cpus": sorted(os.sched_getaffinity(0)),
        "node_cpus": os.cpu_count(),
        "threads": int(os.environ.get("OMP_NUM_THREADS", "0")),
        "memory_gb": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30),
        "address": None,
        "meeting_at": os.environ.get("MASTER_ADDR"),
        "python": sys.version.split()[0],
        "in_container": any(map(os.path.exists, CONTAINER_FILES)) or any(map(os.environ.get, _CONTAINER_VARIABLES)),
        "links_gb_per_s": _links(),
    }
    with contextlib.suppress(OSError):
        facts["address"] = socket.gethostbyname(socket.gethostname())
    try:
        import torch
    except ImportError as error:
        facts["torch_missing"] = str(error)
        return facts
    facts["torch"] = torch.__version__
    if os.environ.get("ACCEPT_DEVICE") == "gpu":
        facts.update(_gpu(torch))
    else:
        facts.update(_product(torch, torch.float32, "cpu"))
    return facts


def _links() -> Dict[str, float]:
    """Return the speed in GB/s of each active InfiniBand port and each Ethernet interface, by name."""
    found = {}
    for path in glob.glob("/sys/class/infiniband/*/ports/*/rate"):
        parts = path.split("/")
        found["%s:%s" % (parts[4], parts[6])] = _number(path) / 8
    for path in glob.glob("/sys/class/net/*/speed"):
        found[path.split("/")[4]] = _number(path) / 8e3
    return {name: speed for name, speed in found.items() if speed > 0}


def _number(path: str) -> float:
    try:
        with open(path) as file:
            return float(file.read().split()[0])
    except (OSError, ValueError, IndexError):  # an interface that is down refuses to be read
        return 0.0


def _gpu(torch: Any) -> Dict[str, Any]:
    if not torch.cuda.is_available():
        return {"gpus": 0}
    torch.cuda.set_device(_device(torch))
    properties = torch.cuda.get_device_properties(_device(torch))
    half = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    return {
        "gpus": torch.cuda.device_count(),
        "device": properties.name,
        "device_memory_gb": properties.total_memory / (1 << 30),
        "device_id": _device_id(properties, torch),
        "is_stand_in": "TRAINJOB_STANDIN_GPUS" in os.environ,
        "cuda": torch.version.cuda or getattr(torch.version, "hip", None),
        **_product(torch, half, "cuda"),
    }


def _device(torch: Any) -> int:
    count: int = torch.cuda.device_count()
    return int(os.environ.get("LOCAL_RANK", "0")) % count


def _device_id(properties: object, torch: object) -> str:
    """Return what tells this GPU from the others of its node."""
    for name in ("uuid", "pci_bus_id"):
        value = getattr(properties, name, None)
        if value is not None:
            return str(value)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return visible[_device(torch)] if len(visible) > _device(torch) else str(_device(torch))


def _product(torch: Any, dtype: object, where: str) -> Dict[str, Any]:
    """Return whether a matrix product is right, and its TFLOP/s."""
    is_small = where == "cpu" or "TRAINJOB_STANDIN_GPUS" in os.environ
    size = _SMALL_MATRIX if is_small else _MATRIX
    one = torch.ones(size, size, dtype=dtype, device=where)
    is_right = bool(((one @ one) == size).all())
    began = time.perf_counter()
    for _ in range(_REPEATS):
        product = one @ one
    product[0, 0].item()
    speed = 2.0 * size**3 * _REPEATS / (time.perf_counter() - began) / 1e12
    return {"product_is_right": is_right, "tflop_per_s": speed}


def reduce() -> int:
    """Print what this rank has, and whether the sum over all ranks is right, and how fast it is."""
    facts = _facts()
    _print(**facts)  # before the ranks meet, which may fail
    import torch
    import torch.distributed as dist

    on_gpu = bool(facts.get("gpus"))
    dist.init_process_group("nccl" if on_gpu else "gloo", timeout=timedelta(seconds=_MEET_S))
    size, rank = dist.get_world_size(), dist.get_rank()
    where = "cuda" if on_gpu else "cpu"
    values = torch.arange(1024, dtype=torch.float32, device=where) + rank
    dist.all_reduce(values)
    expected = size * torch.arange(1024, dtype=torch.float32) + size * (size - 1) // 2
    is_right = bool(torch.equal(values.cpu(), expected))
    is_small = not on_gpu or facts.get("is_stand_in")
    data = torch.zeros((_SMALL_BYTES if is_small else _BYTES) // 4, device=where)
    dist.all_reduce(data)  # connections are made when they are used first
    _wait(torch, on_gpu)
    dist.barrier()
    began, repeats = time.perf_counter(), 5
    for _ in range(repeats):
        dist.all_reduce(data)
    _wait(torch, on_gpu)
    seconds = (time.perf_counter() - began) / repeats
    # The bus bandwidth, as nccl-tests has it: what each link carries, however many ranks there are.
    bandwidth = data.numel() * 4 / seconds * 2 * (size - 1) / size / 1e9
    _print(sum_is_right=is_right, gb_per_s=bandwidth)
    dist.barrier()
    dist.destroy_process_group()
    return 0


def _wait(torch: Any, on_gpu: bool) -> None:
    if on_gpu:
        torch.cuda.synchronize()


def hold() -> int:
    """Wait until USR1, then ask to be started again; end at once if this is the second start."""
    folder = os.environ["TRAINJOB_RUN_DIR"]
    mark = os.path.join(folder, "accept-rank-%d" % _rank())
    if os.path.exists(mark):
        _print(resumed=True)
        return 0
    asked: List[float] = []
    signal.signal(signal.SIGUSR1, lambda *_: asked.append(time.time()))
    _print(holds=True)
    deadline = time.monotonic() + _HOLD_S
    while not asked and time.monotonic() < deadline:
        time.sleep(0.2)
    if not asked:
        sys.exit("no USR1 came within %g s" % _HOLD_S)
    for path in (mark, os.path.join(folder, "requeue")):
        with open(path, "w") as file:
            file.write("1\n")
    _print(saved=True)
    return 0


def requeue() -> int:
    """Have Slurm requeue this job, which it does with preempted ones, too; end at once if it has done so."""
    if os.environ.get("TRAINJOB_ATTEMPT") != "1":
        _print(resumed=True)
        return 0
    time.sleep(2)  # a job that is requeued in its first second may start on nodes that have not ended it
    if subprocess.call(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]]) != 0:
        sys.exit("Slurm refuses to requeue this job")
    time.sleep(_HOLD_S)
    return 0


def die() -> int:
    """Kill the last rank, and wait in the others."""
    time.sleep(2)  # all ranks are there
    if _rank() == int(os.environ.get("WORLD_SIZE", "1")) - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(_HOLD_S)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
