"""Asks a cluster for its devices, on the host that launches."""

from __future__ import annotations

from trainjob.cluster.ipu_place import IpuPlace
from trainjob.cluster.models import Cluster, ipu_place
from trainjob.contract.errors import UserError
from trainjob.submit import machines
from trainjob.submit.devices import gc_monitor, nvidia_smi
from trainjob.submit.devices.device import Device
from trainjob.submit.machine import Machine

# gc-monitor lies in the SDK. IPUOF_VIPU_API_HOST is set for it alone: poptorch programs are disturbed by it.
_GC_MONITOR = """
if [ -n "$1" ]; then . "$1"/poplar-*/enable.sh >/dev/null 2>&1; fi
if [ -n "$2" ]; then export IPUOF_VIPU_API_HOST=$2; fi
if [ -n "$3" ]; then export IPUOF_VIPU_API_PARTITION_ID=$3; fi
command -v gc-monitor >/dev/null 2>&1 || exit 127
exec gc-monitor
"""
_MISSING = 127


def devices(name: str, cluster: Cluster) -> list[Device]:
    """Return what the tool of the cluster's devices says. Raises UserError where there is none, or it fails."""
    machine = machines.reached(cluster.ssh.host, cluster.ssh.user) if cluster.ssh else machines.HERE
    place = ipu_place(cluster)
    return _gpus(name, machine) if place is None else _ipus(name, place, machine)


def _ipus(name: str, cluster: IpuPlace, machine: Machine) -> list[Device]:
    partition = cluster.vipu.partition or ""
    sdk_path = (cluster.sdk.path if cluster.sdk else None) or ""
    # A job's own partition is of no use to others.
    words = [sdk_path, cluster.vipu.server or "", "" if "%j" in partition else partition]
    ended = machine.run(["sh", "-c", _GC_MONITOR, "sh", *words], check=False)
    if ended.code == _MISSING:
        raise UserError(f"{machine.name} has no gc-monitor, by which cluster {name} is asked: set sdk.path to its SDK")
    found = gc_monitor.parse(ended.text)
    if ended.code != 0 and not found:
        # It is known to crash where no partition is active.
        said = (ended.stderr or ended.text).strip().splitlines()[-1:] or ["nothing"]
        raise UserError(f"gc-monitor on {machine.name} exited with {ended.code}: {said[0]}. Is a partition active?")
    return found


def _gpus(name: str, machine: Machine) -> list[Device]:
    listed = machine.run(nvidia_smi.query("gpu", nvidia_smi.GPUS), check=False)
    if listed.code != 0:
        said = (listed.stderr or listed.text).strip().splitlines()[-1:] or ["nothing"]
        raise UserError(
            f"nvidia-smi on {machine.name}, by which cluster {name} is asked, says {said[0]}: is a GPU there?"
        )
    processes = machine.run(nvidia_smi.query("compute-apps", nvidia_smi.PROCESSES), check=False)
    return nvidia_smi.parse(listed.text, processes.text)
