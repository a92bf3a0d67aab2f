"""Measures what each rank of this host uses, from /proc and the tool of its devices."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from trainjob.contract import clock, device_tools
from trainjob.contract.device_tools import MIB, number
from trainjob.contract.environment import RANK, RANK_DEVICE, WORLD_SIZE
from trainjob.launch import processes
from trainjob.launch.host import node_name
from trainjob.launch.processes import Process
from trainjob.launch.rank_environment import OPENMP, Watched, listed_in
from trainjob.launch.witness import node_ranks
from trainjob.launch.witness.evidence import Witness
from trainjob.records.usage import DeviceUse, UsageRecord

_GPU_FIELDS = ("index", "uuid", "utilization.gpu", "memory.used", "memory.total", "power.draw")
_TOOL_LIMIT_S = 10.0

Trees = Mapping[int, Sequence[Process]]
Uses = Dict[int, List[DeviceUse]]  # by rank


class Sampler:
    """Takes samples of the ranks of one launcher."""

    def __init__(self, ranks: Sequence[Watched]) -> None:
        self._ranks = ranks
        self._host = node_name()
        self._limit = Witness().limit
        self._last: Dict[int, "tuple[float, float]"] = {}  # rank -> when, CPU seconds so far
        self._tool = _tool_of(ranks)
        self._hangs: Optional["subprocess.Popen[str]"] = None

    def sample(self) -> List[UsageRecord]:
        """Return a sample of each rank that still runs."""
        ranks = node_ranks.ranks_of(self._ranks)
        trees = processes.trees([rank.pid for rank in ranks])
        uses = self._tool.read(self._ask(self._tool.words), ranks, trees) if self._tool else {}
        return [self._of(rank, trees[rank.pid], uses.get(rank.rank, [])) for rank in ranks if rank.pid in trees]

    def _of(self, rank: Watched, tree: Sequence[Process], devices: List[DeviceUse]) -> UsageRecord:
        now, cpu_s = clock.monotonic(), sum(process.cpu_s for process in tree)
        before = self._last.get(rank.rank)
        self._last[rank.rank] = (now, cpu_s)
        try:
            cpus = len(os.sched_getaffinity(rank.pid))
        except OSError:
            cpus = len(os.sched_getaffinity(0))
        return UsageRecord(
            attempt=rank.attempt,
            rank=rank.rank,
            host=self._host,
            pid=rank.pid,
            time=round(clock.time(), 3),
            cpus=cpus,
            # The time of an ended process is lost if its parent has not waited for it.
            cpu_cores=None if before is None else round(max(0.0, (cpu_s - before[1]) / (now - before[0])), 4),
            memory_bytes=sum(_own_bytes(process, rank.pid) for process in tree),
            memory_limit_bytes=self._limit,
            devices=devices,
            openmp={} if before else {name: rank.environment[name] for name in OPENMP if name in rank.environment},
            other_world_size=_other_world_size(rank, tree),
        )

    def _ask(self, words: Sequence[str]) -> str:
        """Return the output of the devices' tool; nothing if it fails, or if its last run has not ended yet."""
        if self._hangs is not None and self._hangs.poll() is None:
            return ""
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        try:
            process = subprocess.Popen(list(words), stdin=null, stdout=pipe, stderr=null, universal_newlines=True)
        except OSError:
            return ""
        try:
            return process.communicate(timeout=_TOOL_LIMIT_S)[0]
        except subprocess.TimeoutExpired:
            process.kill()  # not waited for: a process in a broken driver never ends
            self._hangs = process
            return ""


def _other_world_size(rank: Watched, tree: Sequence[Process]) -> Optional[int]:
    """Return the world size that a process of the rank was given, if it is not the run's own; None otherwise."""
    expected = rank.environment.get(WORLD_SIZE, "")
    for process in tree:
        try:
            with open("/proc/%d/environ" % process.pid, "rb") as stream:
                words = dict(word.partition(b"=")[::2] for word in stream.read().split(b"\0"))
        except OSError:
            continue  # it has just ended
        given = words.get(WORLD_SIZE.encode(), b"").decode("ascii", "replace")
        if RANK.encode() in words and given.isdigit() and given != expected:
            return int(given)
    return None


def _own_bytes(process: Process, root: int) -> int:
    """Return the resident memory of the rank's first process, and the unshared memory of the others."""
    if process.pid == root:
        return process.resident_bytes
    try:
        with open("/proc/%d/statm" % process.pid) as stream:
            shared = int(stream.read().split()[2]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0
    return max(0, process.resident_bytes - shared)


class _Tool(NamedTuple):
    """A program that shows the devices of one vendor. `read` returns the uses in what it prints."""

    words: List[str]
    read: Callable[[str, Sequence[Watched], Trees], Uses]


def _tool_of(ranks: Sequence[Watched]) -> Optional[_Tool]:
    """Return the tool of the ranks' devices; None on CPUs, and where it is not installed."""
    device = ranks[0].environment.get(RANK_DEVICE, "").partition(":")[0]
    is_one = len(ranks) == 1 and not ranks[0].ranks_per_node
    only = ["--id=%s" % _nvidia_name(rank.environment) for rank in ranks if is_one and device == "cuda"]
    tools = {
        "cuda": (
            _Tool([*device_tools.nvidia_query("gpu", _GPU_FIELDS), *only], _nvidia),
            _Tool(["rocm-smi", "--showuse", "--showmeminfo", "vram", "--showpower", "--json"], _amd),
        ),
        "ipu": (_Tool(["gc-monitor", "--no-card-info"], _ipus),),
    }
    return next((tool for tool in tools.get(device, ()) if shutil.which(tool.words[0])), None)


def _nvidia(printed: str, ranks: Sequence[Watched], trees: Trees) -> Uses:  # noqa: ARG001 - see _Tool
    uses: Uses = {}
    for row in device_tools.nvidia_rows(printed, _GPU_FIELDS):
        index, uuid, use, used, total, power = row.values()
        for rank in ranks:
            if _nvidia_name(rank.environment) in (index, uuid):
                uses[rank.rank] = [_gpu(index, number(use), number(used), number(total), number(power), MIB)]
    return uses


def _nvidia_name(environ: Mapping[str, str]) -> str:
    """Return the rank's GPU as nvidia-smi names it: its index, or its UUID."""
    index = int(environ[RANK_DEVICE].partition(":")[2])
    visible = listed_in(environ, "CUDA_VISIBLE_DEVICES")
    return visible[index] if index < len(visible) else str(index)


def _amd(printed: str, ranks: Sequence[Watched], trees: Trees) -> Uses:  # noqa: ARG001 - see _Tool
    cards, uses = device_tools.rocm_cards(printed), {}
    for rank in ranks:
        index = _amd_index(rank.environment)
        facts = {key: number(value) for key, value in cards.get("card%s" % index, {}).items()}
        if facts:
            used, total = facts.get("vram total used memory (b)"), facts.get("vram total memory (b)")
            # Average Graphics Package Power (W), or Current Socket Graphics Package Power (W).
            watts = [value for key, value in facts.items() if key.endswith("power (w)") and "max" not in key]
            use = facts.get("gpu use (%)")
            uses[rank.rank] = [_gpu(str(index), use, used, total, watts[0] if watts else None)]
    return uses


def _amd_index(environ: Mapping[str, str]) -> Optional[int]:
    """Return the number of the rank's GPU on its host; None if a list names GPUs otherwise than by number."""
    index = int(environ[RANK_DEVICE].partition(":")[2])
    # ROCm applies HIP's list, or CUDA's in its place, to the GPUs that ROCR's list has left.
    for_hip = "HIP_VISIBLE_DEVICES" if "HIP_VISIBLE_DEVICES" in environ else "CUDA_VISIBLE_DEVICES"
    for name in (for_hip, "ROCR_VISIBLE_DEVICES"):
        visible = listed_in(environ, name)
        if visible:
            if index >= len(visible) or not visible[index].isdigit():
                return None
            index = int(visible[index])
    return index


def _gpu(
    index: str,
    percent: Optional[float],
    used: Optional[float],
    total: Optional[float],
    power_w: Optional[float],
    unit_bytes: int = 1,
) -> DeviceUse:
    return DeviceUse(
        device="GPU %s" % index,
        use=None if percent is None else percent / 100,
        memory_bytes=None if used is None else int(used * unit_bytes),
        memory_total_bytes=None if total is None else int(total * unit_bytes),
        power_w=power_w,
    )


def _ipus(printed: str, ranks: Sequence[Watched], trees: Trees) -> Uses:
    """Return the IPUs attached to processes of each rank: gc-monitor shows their power, but not how busy they are."""
    rank_of = {str(process.pid): rank.rank for rank in ranks for process in trees.get(rank.pid, ())}
    uses: Uses = {}
    for row in device_tools.gc_monitor_rows(printed):
        if row.get("PID") in rank_of:
            power_w = number(row.get("Power", "").split(" ")[0])
            uses.setdefault(rank_of[row["PID"]], []).append(DeviceUse("IPU %s" % row["ID"], power_w=power_w))
    return uses
