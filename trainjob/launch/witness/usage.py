"""Measures what each rank of this host uses, from /proc and the tool of its devices."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from typing import Dict, List, Mapping, Optional, Sequence

from trainjob.contract.environment import RANK_DEVICE
from trainjob.launch import processes
from trainjob.launch.host import node_name
from trainjob.launch.processes import Process
from trainjob.launch.rank_environment import Watched
from trainjob.launch.witness.evidence import Witness
from trainjob.records.usage import DeviceUse, UsageRecord

_GPU_FIELDS = ("index", "uuid", "utilization.gpu", "memory.used", "memory.total", "power.draw")
_TOOL_LIMIT_S = 10.0
_MIB = 1 << 20


class Sampler:
    """Takes samples of the ranks of one launcher."""

    def __init__(self, ranks: Sequence[Watched]) -> None:
        self._ranks = ranks
        self._host = node_name()
        self._limit = Witness().limit
        self._last: Dict[int, "tuple[float, float]"] = {}  # rank -> when, CPU seconds so far
        self._devices = _devices_of(ranks)

    def sample(self) -> List[UsageRecord]:
        """Return a sample of each rank that still runs."""
        trees = processes.trees([rank.pid for rank in self._ranks])
        devices = self._devices.ask(trees)
        return [
            self._of(rank, trees[rank.pid], devices.get(rank.rank, [])) for rank in self._ranks if rank.pid in trees
        ]

    def _of(self, rank: Watched, tree: Sequence[Process], devices: List[DeviceUse]) -> UsageRecord:
        now, cpu_s = time.monotonic(), sum(process.cpu_s for process in tree)
        before = self._last.get(rank.rank)
        self._last[rank.rank] = (now, cpu_s)
        return UsageRecord(
            attempt=rank.attempt,
            rank=rank.rank,
            host=self._host,
            pid=rank.pid,
            time=round(time.time(), 3),
            cpus=_cpus(rank.pid),
            # The time of an ended process is lost if nobody has waited for it.
            cpu_cores=None if before is None else round(max(0.0, (cpu_s - before[1]) / (now - before[0])), 4),
            memory_bytes=sum(_own_bytes(process, rank.pid) for process in tree),
            memory_limit_bytes=self._limit,
            devices=devices,
        )


def _cpus(pid: int) -> int:
    try:
        return len(os.sched_getaffinity(pid))
    except OSError:
        return len(os.sched_getaffinity(0))


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


class _NoDevices:
    def ask(self, trees: Mapping[int, Sequence[Process]]) -> Dict[int, List[DeviceUse]]:  # noqa: ARG002 - see _Gpus
        """Return nothing: ranks on CPUs have no devices."""
        return {}


class _Tool:
    """A program that is run repeatedly, and may hang if its device does."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)
        self._hangs: Optional["subprocess.Popen[str]"] = None

    def ask(self) -> str:
        """Return its output; nothing if it fails, or if its last run has not ended yet."""
        if self._hangs is not None and self._hangs.poll() is None:
            return ""
        try:
            process = subprocess.Popen(
                self._words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                universal_newlines=True,
            )
        except OSError:
            return ""
        try:
            return process.communicate(timeout=_TOOL_LIMIT_S)[0]
        except subprocess.TimeoutExpired:
            process.kill()  # not waited for: a process in a broken driver never ends
            self._hangs = process
            return ""


class _Gpus:
    """NVIDIA's GPUs, by nvidia-smi."""

    def __init__(self, ranks: Sequence[Watched]) -> None:
        self._gpu_of = {rank.rank: _gpu_name(rank.environment) for rank in ranks}
        only = ["--id=%s" % name for name in self._gpu_of.values()] if len(ranks) == 1 else []
        query = "--query-gpu=%s" % ",".join(_GPU_FIELDS)
        self._tool = _Tool(["nvidia-smi", query, "--format=csv,noheader,nounits", *only])

    def ask(self, trees: Mapping[int, Sequence[Process]]) -> Dict[int, List[DeviceUse]]:  # noqa: ARG002 - see _Ipus
        """Return the GPU of each rank."""
        rows = [[cell.strip() for cell in line.split(",")] for line in self._tool.ask().splitlines()]
        by_name = {name: row for row in rows if len(row) == len(_GPU_FIELDS) for name in row[:2]}
        named = {rank: by_name.get(name) for rank, name in self._gpu_of.items()}
        return {rank: [_gpu(row)] for rank, row in named.items() if row is not None}


def _gpu_name(environ: Mapping[str, str]) -> str:
    """Return the rank's GPU as nvidia-smi names it: its index, or its UUID."""
    number = int(environ[RANK_DEVICE].partition(":")[2])
    visible = [name.strip() for name in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return visible[number] if number < len(visible) else str(number)


def _gpu(row: Sequence[str]) -> DeviceUse:
    use, used, total, power = (_number(cell) for cell in row[2:])
    return DeviceUse(
        device="GPU %s" % row[0],
        use=None if use is None else use / 100,
        memory_bytes=None if used is None else int(used * _MIB),
        memory_total_bytes=None if total is None else int(total * _MIB),
        power_w=power,
    )


class _AmdGpus:
    """AMD's GPUs, by rocm-smi."""

    def __init__(self, ranks: Sequence[Watched]) -> None:
        self._card_of = {rank.rank: _amd_card(rank.environment) for rank in ranks}
        self._tool = _Tool(["rocm-smi", "--showuse", "--showmeminfo", "vram", "--showpower", "--json"])

    def ask(self, trees: Mapping[int, Sequence[Process]]) -> Dict[int, List[DeviceUse]]:  # noqa: ARG002 - see _Ipus
        """Return the GPU of each rank whose number is known."""
        printed = self._tool.ask()
        try:
            cards = json.loads(printed[printed.index("{") :])  # warnings may come before it
        except ValueError:
            return {}
        named = {rank: cards.get("card%s" % card) for rank, card in self._card_of.items()}
        return {
            rank: [_amd_gpu(str(self._card_of[rank]), card)] for rank, card in named.items() if isinstance(card, dict)
        }


def _amd_card(environ: Mapping[str, str]) -> Optional[int]:
    """Return the number of the rank's GPU on its host; None if a list names GPUs otherwise than by number."""
    number = int(environ[RANK_DEVICE].partition(":")[2])
    # ROCm applies HIP's list, or CUDA's in its place, to the GPUs that ROCR's list has left.
    for_hip = "HIP_VISIBLE_DEVICES" if "HIP_VISIBLE_DEVICES" in environ else "CUDA_VISIBLE_DEVICES"
    for name in (for_hip, "ROCR_VISIBLE_DEVICES"):
        visible = [word.strip() for word in environ.get(name, "").split(",") if word.strip()]
        if visible:
            if number >= len(visible) or not visible[number].isdigit():
                return None
            number = int(visible[number])
    return number


def _amd_gpu(number: str, card: Mapping[str, object]) -> DeviceUse:
    # Keys differ by release: "Average Graphics Package Power (W)", "Current Socket Graphics Package Power (W)".
    facts = {key.lower(): _number(str(value)) for key, value in card.items()}
    use, used, total = (
        facts.get(key) for key in ("gpu use (%)", "vram total used memory (b)", "vram total memory (b)")
    )
    power = next((watts for key, watts in facts.items() if key.endswith("power (w)") and "max" not in key), None)
    return DeviceUse(
        device="GPU %s" % number,
        use=None if use is None else use / 100,
        memory_bytes=None if used is None else int(used),
        memory_total_bytes=None if total is None else int(total),
        power_w=power,
    )


class _Ipus:
    """IPUs, by gc-monitor, which shows the IPUs attached to a process and their power, but not how busy they are."""

    def __init__(self, ranks: Sequence[Watched]) -> None:
        self._rank_of = {rank.pid: rank.rank for rank in ranks}
        self._tool = _Tool(["gc-monitor", "--no-card-info"])

    def ask(self, trees: Mapping[int, Sequence[Process]]) -> Dict[int, List[DeviceUse]]:
        """Return the IPUs that are attached to processes of each rank."""
        owner = {str(one.pid): self._rank_of[root] for root, tree in trees.items() for one in tree}
        attached: Dict[int, List[DeviceUse]] = {}
        for row in _attached(self._tool.ask()):
            if row["PID"] in owner:
                power = _number(row.get("Power", "").split(" ")[0])
                attached.setdefault(owner[row["PID"]], []).append(DeviceUse("IPU %s" % row["ID"], power_w=power))
        return attached


def _attached(output: str) -> List[Dict[str, str]]:
    """Return the rows of gc-monitor's table of attached processes, by its headings, which differ by release."""
    heads, rows = [], []  # type: List[str], List[Dict[str, str]]
    for line in output.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if "PID" in cells and "ID" in cells:
            heads = cells
        elif heads and len(cells) == len(heads) and line.lstrip().startswith("|"):
            rows.append(dict(zip(heads, cells)))
    return rows


def _number(text: str) -> Optional[float]:
    try:
        return float(text)
    except ValueError:  # [N/A], [Not Supported]
        return None


def _devices_of(ranks: Sequence[Watched]) -> "_NoDevices | _Gpus | _AmdGpus | _Ipus":
    device = ranks[0].environment.get(RANK_DEVICE, "")
    if device.startswith("cuda:") and shutil.which("nvidia-smi"):
        return _Gpus(ranks)
    if device.startswith("cuda:") and shutil.which("rocm-smi"):
        return _AmdGpus(ranks)
    if device == "ipu" and shutil.which("gc-monitor"):
        return _Ipus(ranks)
    return _NoDevices()
