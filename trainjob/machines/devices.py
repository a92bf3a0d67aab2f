"""A cluster's devices and who uses them: from gc-monitor, nvidia-smi or rocm-smi, or from Slurm's controller."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from trainjob.cluster import slurm_text
from trainjob.cluster.base import Cluster, IpuCluster
from trainjob.contract import package
from trainjob.contract.device_tools import MIB, gc_monitor_rows, nvidia_query, nvidia_rows, rocm_cards
from trainjob.contract.environment import STANDIN_VIPU
from trainjob.contract.errors import UserError
from trainjob.machines.access import HERE, machine_of
from trainjob.machines.machine import Machine
from trainjob.machines.process import Completed
from trainjob.machines.slurm import commands, partitions
from trainjob.machines.ssh import onward

_SDK = package.program(str(package.folder() / "launch" / "main.py"), "shell/sdk.sh")
_GC_MONITOR = f"{_SDK}\n{package.program(__file__, 'gc_monitor.sh')}"
_MISSING = 127
_TOOL = ["sh", "-c", "command -v nvidia-smi || command -v rocm-smi"]
_GPUS = ("index", "uuid", "name", "memory.used", "memory.total", "utilization.gpu")
_PROCESSES = ("gpu_uuid", "pid", "process_name", "used_memory")
_ROCM_SMI = ["rocm-smi", "--showproductname", "--showmeminfo", "vram", "--showuse", "--showpids", "--json"]
# An idle GPU of AMD's still shows this much memory in use.
_IDLE_MIB = 512
_PARTITION = re.compile(r"[Pp]artition:?\s+'?([\w.-]+)'?")
_SINFO = ["sinfo", "--Node", "--noheader", "-O", "NodeList:|,Gres:|,GresUsed:|,StateLong:|"]
# States of a node on which a job may be given what no other one holds.
_TAKES_JOBS = re.compile(r"(idle|mixed|completing)")
_JOB = re.compile(r"JobId=(\d+) .*?UserId=([^(\s]+)")
# The allocation of a job on some of its nodes. GPUs that are only counted get the first indices.
_HELD = re.compile(r" Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)")
_HELD_GPUS = re.compile(r"\bgpu(?::[\w.-]+)?:(\d+)(?:\(IDX:([\d,-]+)\))?")


@dataclass(frozen=True)
class Device:
    """An IPU of a partition, or a GPU. Texts are the tool's own; "" where it does not say."""

    device: str
    where: str  # partition and IPU-Machine, or GPU model
    detail: str  # clock and temperature, or memory and load
    user: str
    process: str  # process id and command
    is_free: bool  # nobody has it, and a job may be given it


def devices(name: str, cluster: Cluster) -> list[Device]:
    """Return the cluster's devices as their tool lists them. Raises UserError if there is no tool, or it fails."""
    # A rehearsed pod is on this machine, wherever the real one is.
    machine = HERE if STANDIN_VIPU in os.environ else machine_of(cluster)
    if cluster.ipu_keys is not None:
        return _ipus(name, cluster.ipu_keys, machine)
    if cluster.accelerators_per_host == 0:
        raise UserError(
            f"cluster {name} has no devices: {cluster.accelerator_key} is cpu, so its ranks train on CPUs",
            f"Name another cluster, or give {cluster.accelerator_key} in its file",
        )
    if cluster.has_scheduler:
        return _allocated(name, cluster.partition, machine)
    if not cluster.hosts_are_named:
        return _gpus(name, machine)
    with ThreadPoolExecutor(max_workers=8) as pool:
        listed = pool.map(lambda host: (host, _gpus(name, machine, host)), cluster.host_names or ())
        return [replace(device, where=f"{host} · {device.where}") for host, devices in listed for device in devices]


def _reason(ended: Completed) -> str:
    return ((ended.stderr or ended.text).strip().splitlines() or ["nothing"])[-1]


# -- IPUs ----------------------------------------------------------------------------------------


def _ipus(name: str, cluster: IpuCluster, machine: Machine) -> list[Device]:
    partition = cluster.vipu.partition or ""
    sdk_path = (cluster.sdk.path if cluster.sdk else None) or ""
    # A partition that a job has made is of no use to other jobs.
    words = [sdk_path, cluster.vipu.server or "", "" if "%j" in partition else partition]
    ended = machine.run(["bash", "-c", _GC_MONITOR, "gc_monitor.sh", *words], check=False)
    if ended.code == _MISSING:
        raise UserError(
            f"{machine.name} has no gc-monitor, which lists the IPUs of cluster {name}", "set sdk.path to its SDK"
        )
    listed = ipus(ended.text)
    if ended.code != 0 and not listed:
        # It is known to crash if no partition is active.
        raise UserError(
            f"gc-monitor on {machine.name} exited with {ended.code}: {_reason(ended)}",
            "check that a partition is active",
        )
    if not listed:
        raise UserError(f"gc-monitor on {machine.name} printed no table of IPUs", "run it there to see what it prints")
    return listed


def ipus(printed: str) -> list[Device]:
    """Return every IPU that gc-monitor's table of boards lists, with the process attached to it."""
    partition = _PARTITION.search(printed)
    rows = [row for row in gc_monitor_rows(printed) if "ID" in row]
    attached = {row["ID"]: row for row in rows if "PID" in row}
    listed = []
    for board in [row for row in rows if "PID" not in row] or attached.values():
        process = attached.get(board["ID"], {})
        where = (partition[1] if partition else "", board.get("IPU-M", ""))
        details = (process.get(head, "") for head in ("Clock", "Temp", "Power"))
        words = (process.get(head, "") for head in ("PID", "Command", "Time"))
        listed.append(
            Device(
                device=f"IPU {board['ID']}",
                where=" · ".join(filter(None, where)),
                detail=" · ".join(text for text in details if text not in ("", "N/A")),
                user=process.get("User", ""),
                process=" ".join(filter(None, words)),
                is_free=not process,
            )
        )
    return listed


# -- GPUs ----------------------------------------------------------------------------------------


def _gpus(name: str, machine: Machine, host: str | None = None) -> list[Device]:
    """Return the GPUs of `machine`, or of `host`, which is reached from there."""
    is_amd = onward.run(machine, host, _TOOL, check=False).text.strip().endswith("rocm-smi")
    tool = f"{'rocm-smi' if is_amd else 'nvidia-smi'} on {host or machine.name}"
    listed = onward.run(machine, host, _ROCM_SMI if is_amd else nvidia_query("gpu", _GPUS), check=False)
    if listed.code != 0:
        raise UserError(
            f"{tool}, which lists the GPUs of cluster {name}, failed: {_reason(listed)}",
            "check that the host has a GPU and its driver",
        )
    if is_amd:
        devices = amd_gpus(listed.text)
    else:
        processes = onward.run(machine, host, nvidia_query("compute-apps", _PROCESSES), check=False)
        devices = nvidia_gpus(listed.text, processes.text)
    if not devices:
        raise UserError(f"{tool} printed no list of GPUs", "run it there to see what it prints")
    return devices


def nvidia_gpus(listed: str, processes: str) -> list[Device]:
    """Return every GPU that nvidia-smi lists, with the processes on it."""
    users: dict[str, list[str]] = {}
    for row in nvidia_rows(processes, _PROCESSES):
        users.setdefault(row["gpu_uuid"], []).append(f"{row['pid']} {row['process_name']} ({row['used_memory']} MiB)")
    return [
        Device(
            device=f"GPU {row['index']}",
            where=row["name"],
            detail=f"{row['memory.used']} of {row['memory.total']} MiB · {row['utilization.gpu']} %",
            user="",
            process=", ".join(users.get(row["uuid"], [])),
            is_free=row["uuid"] not in users,
        )
        for row in nvidia_rows(listed, _GPUS)
    ]


def amd_gpus(printed: str) -> list[Device]:
    """Return every GPU. One in use names all processes of the host: rocm-smi doesn't say which process uses which."""
    cards = rocm_cards(printed)
    system = cards.pop("system", {})
    processes = [f"{key[3:]} {value.split(',')[0]}" for key, value in system.items() if key.startswith("pid")]
    listed = []
    for name, facts in cards.items():
        memory = (facts.get(f"vram total {key}memory (b)", "") for key in ("used ", ""))
        used, total = (int(text) // MIB if text.isdigit() else 0 for text in memory)
        load = facts.get("gpu use (%)", "0")
        is_used = used > _IDLE_MIB or load not in ("0", "N/A")
        listed.append(
            Device(
                device=f"GPU {name.removeprefix('card')}",
                where=facts.get("card series") or facts.get("device name") or facts.get("card model", ""),
                detail=f"{used} of {total} MiB · {load} %",
                user="",
                process=(", ".join(processes) or "a process that rocm-smi does not name") if is_used else "",
                is_free=not is_used,
            )
        )
    return listed


# -- GPUs under Slurm, from the controller: nothing runs on the nodes, and the login node may have none ----------


def _allocated(name: str, partition: str | None, machine: Machine) -> list[Device]:
    """Return the GPUs of the partition's nodes, and the jobs that hold them. Raises as commands.call does."""
    nodes = commands.call(machine, [*_SINFO, *([f"--partition={partition}"] if partition else [])]).text
    held = _held(commands.call(machine, ["scontrol", "show", "job", "-d", "-o"]).text)
    listed: dict[Device, None] = {}  # once: a node is listed for each of its partitions
    for line in nodes.splitlines():
        node, gres, used, state = (*line.strip().split("|"), "", "", "", "")[:4]
        # Others' jobs may be hidden from this user, and sinfo says all the same what is used.
        in_use = set(_indices(used))
        for resource, kind, count in partitions.gres(gres):
            for index in range(count if resource == "gpu" else 0):
                job, user = held.get((node, index), ("", ""))
                where = " · ".join(filter(None, (node, kind)))
                process = f"job {job}" if job else "a job that you may not see" if index in in_use else ""
                is_free = not process and _TAKES_JOBS.match(state) is not None
                listed[Device(f"GPU {index}", where, state, user, process, is_free)] = None
    if not listed:
        where = f"partition {partition}" if partition else "any partition"
        raise UserError(
            f"sinfo on {machine.name} lists no GPUs on the nodes of {where}, which cluster {name} says there are",
            "check nodes.accelerator in the cluster file against: sinfo -N -O NodeList,Gres",
        )
    return list(listed)


def _held(jobs: str) -> dict[tuple[str, int], tuple[str, str]]:
    """Return job and user by node and GPU, in the output of `scontrol show job -d -o`."""
    held = {}
    for line in jobs.splitlines():
        if job := _JOB.match(line):
            for names, gres in _HELD.findall(line):
                nodes = slurm_text.expand(names)
                held.update({(node, index): (job[1], job[2]) for node in nodes for index in _indices(gres)})
    return held


def _indices(gres: str) -> Iterator[int]:
    for count, listed in _HELD_GPUS.findall(gres):
        if not listed:
            yield from range(int(count))
        for part in filter(None, listed.split(",")):
            first, _, last = part.partition("-")
            yield from range(int(first), int(last or first) + 1)
