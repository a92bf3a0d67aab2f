"""Description → slurm.conf, gres.conf and the hosts file: text, nothing written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainjob.rehearse.slurm.description import SCHEDULER, Description, Partition

FIRST_PORT = 17001
# Below the folder of one private Slurm: a file system in memory that ends with it.
PRIVATE = "private"


def slurm_conf(description: Description, folder: Path) -> str:
    """Return slurm.conf. Every path lies below `folder`, every port in a network namespace of its own."""
    lines = [f"{name}={value}" for name, value in {**_settings(folder), **description.settings}.items()]
    if description.gres:
        lines.append(f"GresTypes={description.gres}")
    if description.licenses:
        lines.append(f"Licenses={description.licenses}")
    lines += _nodes(description)
    lines += [_partition(one, is_default=index == 0) for index, one in enumerate(description.partitions)]
    return "\n".join(lines) + "\n"


def _settings(folder: Path) -> dict[str, str]:
    private = folder / PRIVATE
    return {
        "ClusterName": "trainjob",
        "SlurmctldHost": "localhost(127.0.0.1)",
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={private}/munge/socket",
        "CredType": "cred/munge",
        "StateSaveLocation": f"{private}/state",
        "SlurmdSpoolDir": f"{private}/spool-%n",
        "SlurmctldPidFile": f"{private}/slurmctld.pid",
        "SlurmdPidFile": f"{private}/slurmd-%n.pid",
        "SlurmctldLogFile": f"{private}/slurmctld.log",
        "SlurmdLogFile": f"{private}/slurmd-%n.log",
        "JobCompType": "jobcomp/filetxt",
        "JobCompLoc": f"{private}/completed.txt",
        # The nodes share one host, which has neither their CPUs, nor their memory, nor control groups to give.
        "SlurmdParameters": "config_overrides",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "AccountingStorageType": "accounting_storage/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CPU_Memory",
        "MpiDefault": "none",
        "ReturnToService": "2",
        "JobRequeue": "1",
        # Refused and not queued for ever: a rehearsal is there to say so.
        "EnforcePartLimits": "ALL",
        # A site's own limits are none of a laptop's.
        "PropagateResourceLimits": "NONE",
        "PreemptType": "preempt/partition_prio",
        "PreemptMode": "REQUEUE",
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": SCHEDULER,
    }


def _nodes(description: Description) -> Iterator[str]:
    resources = f"CPUs={description.cpus} RealMemory={description.memory_mb}"
    if description.gres:
        resources += f" Gres={description.gres}:{_typed(description)}{description.gres_count}"
    if description.features:
        resources += f" Features={','.join(description.features)}"
    for index, name in enumerate(description.node_names):
        state = "UNKNOWN" if name in description.nodes_at_work else "DOWN"
        where = f"NodeHostname={name} NodeAddr=127.0.0.1 Port={FIRST_PORT + index}"
        yield f"NodeName={name} {where} State={state} {resources}"


def _typed(description: Description) -> str:
    return f"{description.gres_type}:" if description.gres_type else ""


def _partition(partition: Partition, *, is_default: bool) -> str:
    words = [
        f"PartitionName={partition.name} Nodes=ALL Default={'YES' if is_default else 'NO'} State=UP",
        f"MaxNodes={partition.max_nodes or 'UNLIMITED'} MaxTime={partition.max_time or 'UNLIMITED'}",
        f"PriorityTier={partition.priority_tier} PreemptMode={partition.preempt_mode} GraceTime={partition.grace_s}",
    ]
    return " ".join(words)


def gres_conf(description: Description, folder: Path) -> str:
    """Return gres.conf: device files, for a bare count leaves the nodes invalid."""
    if not description.gres:
        return ""
    kind = f" Type={description.gres_type}" if description.gres_type else ""
    files = f"{folder / PRIVATE}/{description.gres}[0-{description.gres_count - 1}]"
    return f"Name={description.gres}{kind} File={files}\n"


def device_names(description: Description) -> list[str]:
    """Return the names of the device files: a node's accelerators, which all nodes here share."""
    return [f"{description.gres}{number}" for number in range(description.gres_count)] if description.gres else []


def hosts_file(description: Description) -> str:
    """Return what /etc/hosts says inside: every node by its name."""
    return f"127.0.0.1 localhost login {' '.join(description.node_names)}\n"
