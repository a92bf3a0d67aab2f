"""Lists a cluster's devices: on the host that launches, through it on every host, or from Slurm's controller."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from trainjob.cluster.base import Cluster, IpuCluster
from trainjob.contract import package
from trainjob.contract.environment import STANDIN_VIPU
from trainjob.contract.errors import UserError
from trainjob.machines.access import HERE, machine_at
from trainjob.machines.devices import allocated, rocm_smi, tools
from trainjob.machines.devices.tools import Device
from trainjob.machines.machine import Machine
from trainjob.machines.ssh import onward

_SDK = package.program(str(package.folder() / "launch" / "main.py"), "shell/sdk.sh")
_GC_MONITOR = f"{_SDK}\n{package.program(__file__, 'gc_monitor.sh')}"
_MISSING = 127
_TOOL = ["sh", "-c", "command -v nvidia-smi || command -v rocm-smi"]


def devices(name: str, cluster: Cluster) -> list[Device]:
    """Return the cluster's devices as their tool lists them. Raises UserError if there is no tool, or it fails."""
    # A rehearsed pod is on this machine, wherever the real one is.
    is_rehearsed = STANDIN_VIPU in os.environ
    machine = machine_at(cluster.ssh.host, cluster.ssh.user) if cluster.ssh and not is_rehearsed else HERE
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


def _allocated(name: str, partition: str | None, machine: Machine) -> list[Device]:
    """Return the GPUs of the partition's nodes. The login node may have none."""
    listed = allocated.devices(machine, partition)
    if not listed:
        where = f"partition {partition}" if partition else "any partition"
        raise UserError(
            f"sinfo on {machine.name} lists no GPUs on the nodes of {where}, which cluster {name} says there are",
            "check nodes.accelerator in the cluster file against: sinfo -N -O NodeHost,Gres",
        )
    return listed


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
    listed = tools.ipus(ended.text)
    if ended.code != 0 and not listed:
        # It is known to crash if no partition is active.
        reason = (ended.stderr or ended.text).strip().splitlines()[-1:] or ["nothing"]
        raise UserError(
            f"gc-monitor on {machine.name} exited with {ended.code}: {reason[0]}", "check that a partition is active"
        )
    if not listed:
        raise UserError(f"gc-monitor on {machine.name} printed no table of IPUs", "run it there to see what it prints")
    return listed


def _gpus(name: str, machine: Machine, host: str | None = None) -> list[Device]:
    """Return the GPUs of `machine`, or of `host`, which is reached from there."""
    if onward.run(machine, host, _TOOL, check=False).text.strip().endswith("rocm-smi"):
        return _amd_gpus(name, machine, host)
    listed = onward.run(machine, host, tools.query("gpu", tools.GPUS), check=False)
    if listed.code != 0:
        reason = (listed.stderr or listed.text).strip().splitlines()[-1:] or ["nothing"]
        raise UserError(
            f"nvidia-smi on {host or machine.name}, which lists the GPUs of cluster {name}, failed: {reason[0]}",
            "check that the host has a GPU and its driver",
        )
    processes = onward.run(machine, host, tools.query("compute-apps", tools.PROCESSES), check=False)
    devices = tools.gpus(listed.text, processes.text)
    if not devices:
        raise UserError(
            f"nvidia-smi on {host or machine.name} printed no list of GPUs", "run it there to see what it prints"
        )
    return devices


def _amd_gpus(name: str, machine: Machine, host: str | None) -> list[Device]:
    listed = onward.run(machine, host, rocm_smi.QUERY, check=False)
    devices = rocm_smi.parse(listed.text) if listed.code == 0 else []
    if not devices:
        reason = (listed.stderr or listed.text).strip().splitlines()[-1:] or ["nothing"]
        raise UserError(
            f"rocm-smi on {host or machine.name}, which lists the GPUs of cluster {name}, failed: {reason[0]}",
            "check that the host has a GPU and its driver",
        )
    return devices
