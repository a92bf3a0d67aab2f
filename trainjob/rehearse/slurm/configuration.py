"""Description → slurm.conf, gres.conf and the hosts file: text, nothing written."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from trainjob.rehearse.slurm import root
from trainjob.rehearse.slurm.description import SCHEDULER, Description, NodeGroup, Partition

FIRST_PORT = 17001
# In the folder of a private Slurm: a file system in memory that ends with it.
PRIVATE = "private"
JOB_ENVIRONMENT = "job-environment"  # what the TaskProlog prints
MOUNTED = ("release", "root", "plugins")  # where another release's files are mounted
# Name in the folder -> the file beside this module that is copied there.
PROGRAMS = {"task-prolog": "task_prolog.sh", "accounting": "accounting.sh"}
_FIRST_WITH_CGROUP_PLUGINS = (23, 2)


def files(description: Description, folder: Path, release_root: Path | None, installed: str) -> dict[str, str]:
    """Return what is written into `folder`: every file by its name.

    `release_root` is None for the Slurm of this machine, whose release is `installed`.
    """
    settings = {
        "devices": " ".join(_device_names(description)),
        "root": release_root or "",
        "accounting": "1" if description.accounting else "",
        "slurmd": slurmd(release_root),
    }
    found = {
        "slurm.conf": slurm_conf(description, folder),
        "gres.conf": gres_conf(description, folder),
        "hosts": f"127.0.0.1 localhost login {' '.join(description.node_names)}\n",
        "settings": _assignments(settings),
        JOB_ENVIRONMENT: "",
    }
    if description.accounting:
        found |= {"accounting.conf": slurmdbd_conf(folder), "associations": _associations(description)}
    if _takes_cgroup_plugins(description.release or installed):
        found["cgroup.conf"] = "CgroupPlugin=disabled\n"
    if release_root is not None:
        user = root.our_user()
        ours = f"{user.pw_name}:x:{user.pw_uid}:{user.pw_gid}::{user.pw_dir}:/bin/sh\n"
        found["passwd"] = ours if user.pw_uid else ""
    return found


def slurmd(release_root: Path | None) -> str:
    """Return the command, as words of a shell, that starts a node's daemon."""
    if release_root is None:
        return "slurmd"
    programs = shlex.quote(str(release_root / "trainjob"))
    return f"{programs}/slurmd -d {programs}/slurmstepd"


def _assignments(values: Mapping[str, object]) -> str:
    return "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in values.items())


def _takes_cgroup_plugins(release: str) -> bool:
    return tuple(int(word) for word in release.split(".")) >= _FIRST_WITH_CGROUP_PLUGINS


def slurm_conf(description: Description, folder: Path) -> str:
    """Return slurm.conf. Every path lies below `folder`, every port in a network namespace of its own."""
    ours = {**_settings(folder), **_site(description, folder)}
    lines = [f"{name}={value}" for name, value in {**ours, **description.settings}.items()]
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
        # All nodes are this host, which has neither the CPUs, nor the memory, nor the control groups of them all.
        "SlurmdParameters": "config_overrides",
        "ProctrackType": "proctrack/linuxproc",
        # Sets variables in a job's environment beside those of its site.
        "TaskProlog": f"{folder}/task-prolog",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CPU_Memory",
        "MpiDefault": "none",
        "ReturnToService": "2",
        "JobRequeue": "1",
        # Such a job is refused, not queued forever: a rehearsal must report it.
        "EnforcePartLimits": "ALL",
        # A laptop's limits are not those of a site.
        "PropagateResourceLimits": "NONE",
        "PreemptType": "preempt/partition_prio",
        "PreemptMode": "REQUEUE",
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": SCHEDULER,
    }


_ACCOUNT = "rehearsal"


def _site(description: Description, folder: Path) -> dict[str, str]:
    """Return the settings that differ between sites."""
    settings = {"TaskPlugin": f"task/{description.task_plugin}"}
    if description.release:
        settings["PluginDir"] = f"{folder}/plugins"
    if description.default_mb_per_cpu is not None:
        settings["DefMemPerCPU"] = str(description.default_mb_per_cpu)
    if not description.accounting:
        return {
            **settings,
            "JobAcctGatherType": "jobacct_gather/none",
            "AccountingStorageType": "accounting_storage/none",
        }
    return {
        **settings,
        "JobAcctGatherType": "jobacct_gather/linux",
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": "localhost",
        # With munge this is the socket of a munged that is not the host's.
        "AccountingStoragePass": f"{folder / PRIVATE}/munge/socket",
        "AccountingStorageEnforce": "associations,limits,qos",
    }


def slurmdbd_conf(folder: Path) -> str:
    """Return slurmdbd.conf: a database that root reaches by its socket, without a password."""
    private = folder / PRIVATE
    settings = {
        "DbdHost": "localhost",
        "SlurmUser": "root",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={private}/munge/socket",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "localhost",
        "StorageUser": "root",
        "StorageLoc": "slurm_acct_db",
        "PidFile": f"{private}/slurmdbd.pid",
        "LogFile": f"{private}/slurmdbd.log",
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _nodes(description: Description) -> Iterator[str]:
    port = FIRST_PORT
    for group, names in description.node_groups:
        resources = _resources(group, description.gres)
        for name in names:
            state = "UNKNOWN" if name in description.nodes_at_work else "DOWN"
            where = f"NodeHostname={name} NodeAddr=127.0.0.1 Port={port}"
            yield f"NodeName={name} {where} State={state} {resources}"
            port += 1


def _resources(group: NodeGroup, gres: str | None) -> str:
    threads = group.threads_per_core
    words = [f"CPUs={group.cpus} RealMemory={group.memory_mb}"]
    if threads > 1:
        words.append(f"Sockets=1 CoresPerSocket={group.cpus // threads} ThreadsPerCore={threads}")
    if gres:
        kind = f"{group.gres_type}:" if group.gres_type else ""
        words.append(f"Gres={gres}:{kind}{group.gres_count}")
    if group.features:
        words.append(f"Features={','.join(group.features)}")
    return " ".join(words)


def _partition(partition: Partition, *, is_default: bool) -> str:
    words = [
        f"PartitionName={partition.name} Nodes=ALL Default={'YES' if is_default else 'NO'} State=UP",
        f"MaxNodes={partition.max_nodes or 'UNLIMITED'} MaxTime={partition.max_time or 'UNLIMITED'}",
        f"PriorityTier={partition.priority_tier} PreemptMode={partition.preempt_mode} GraceTime={partition.grace_s}",
    ]
    return " ".join(words)


def gres_conf(description: Description, folder: Path) -> str:
    """Return gres.conf, with device files: a bare count would make the nodes invalid."""
    if not description.gres:
        return ""
    return "".join(_devices_of(description, folder, *group) for group in description.node_groups)


def _devices_of(description: Description, folder: Path, group: NodeGroup, names: tuple[str, ...]) -> str:
    where = f"NodeName={','.join(names)} " if description.groups else ""
    kind = f" Type={group.gres_type}" if group.gres_type else ""
    files = f"{folder / PRIVATE}/{description.gres}[0-{group.gres_count - 1}]"
    return f"{where}Name={description.gres}{kind} File={files}\n"


def _device_names(description: Description) -> list[str]:
    """Return the names of the device files: a node's accelerators, which all nodes here share."""
    return [f"{description.gres}{number}" for number in range(description.gres_count)] if description.gres else []


def _associations(description: Description) -> str:
    """Return sacctmgr's words, a line each, that let the user submit with the cluster file's account and QOS."""
    account, user = description.account or _ACCOUNT, root.our_user().pw_name
    lines = [f"add account {account} cluster=trainjob"]
    lines += [f"add qos {description.qos}"] if description.qos else []
    qos = f" qos=normal,{description.qos}" if description.qos else ""
    lines += [
        f"add user {name} account={account} defaultaccount={account}{qos}" for name in dict.fromkeys(("root", user))
    ]
    return "".join(f"{line}\n" for line in lines)
