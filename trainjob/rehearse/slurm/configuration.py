"""Description → slurm.conf, gres.conf and the hosts file: text, nothing written."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

from trainjob.contract.paths import with_home
from trainjob.rehearse.slurm import root
from trainjob.rehearse.slurm.description import SCHEDULER, Description

FIRST_PORT = 17001
# By which nodes know each other. With nothing but loopback no name is looked up (getaddrinfo's AI_ADDRCONFIG).
ADDRESS = "10.213.0.1"
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
    # A node's accelerators, which all nodes here share.
    devices = [f"{description.gres}{number}" for number in range(description.gres_count)] if description.gres else []
    settings = {
        "devices": " ".join(devices),
        "address": ADDRESS,
        "root": release_root or "",
        "accounting": "1" if description.accounting else "",
        "every_address": "1" if description.has_every_address else "",
        "confined": "1" if description.overlays else "",
        "slurmd": slurmd(release_root),
    }
    found = {
        "slurm.conf": slurm_conf(description, folder),
        "gres.conf": gres_conf(description, folder),
        "hosts": f"127.0.0.1 localhost login\n{ADDRESS} {' '.join(description.node_names)}\n",
        "settings": "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in settings.items()),
        JOB_ENVIRONMENT: "",
        "mounts": "".join(f"{line}\n" for mount in _mounts(description) for line in mount),
        "empty-files": "".join(f"{path}\n" for path in description.empty_files),
    }
    user = root.our_user()
    if description.accounting:
        found["accounting.conf"] = slurmdbd_conf(folder)
        found["associations"] = _associations(description, user.pw_name)
    release = description.release or installed
    if tuple(int(word) for word in release.split(".")) >= _FIRST_WITH_CGROUP_PLUGINS:
        found["cgroup.conf"] = "CgroupPlugin=disabled\n"
    if release_root is not None:
        ours = f"{user.pw_name}:x:{user.pw_uid}:{user.pw_gid}::{user.pw_dir}:/bin/sh\n"
        found["passwd"] = ours if user.pw_uid else ""
    return found


def _mounts(description: Description) -> list[tuple[str, str, str, str]]:
    """Return the folders that jobs find otherwise: number, kind, source and target of each, the outer ones first."""
    if not description.overlays:
        return []
    ours, home = Path(tempfile.gettempdir()).resolve(), with_home("~").resolve()
    covered = {target for _, target in description.overlays}
    kinds = [("overlay", source, target) for source, target in description.overlays]
    if home.is_dir() and home != Path("/") and str(home) not in covered:
        kinds.append(("home", str(home), str(home)))
    for name in dict.fromkeys([*description.writable, str(ours), "/tmp", "/var/tmp"]):  # noqa: S108 - mounted, not used
        if name not in covered and os.path.isdir(name):
            # What has our own folder in it can only be mounted in its place.
            kinds.append(("scratch" if ours.is_relative_to(name) else "writable", name, name))
    numbered = [(str(number), *one) for number, one in enumerate(kinds)]
    return sorted(numbered, key=lambda one: len(Path(one[3]).parts))


def slurmd(release_root: Path | None) -> str:
    """Return the command, as words of a shell, that starts a node's daemon."""
    if release_root is None:
        return "slurmd"
    programs = shlex.quote(str(release_root / "trainjob"))
    return f"{programs}/slurmd -d {programs}/slurmstepd"


def slurm_conf(description: Description, folder: Path) -> str:
    """Return slurm.conf. Every path is below `folder`, every port in a network namespace of its own."""
    private = folder / PRIVATE
    settings = {
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
        "TaskPlugin": f"task/{description.task_plugin}",
        "JobAcctGatherType": "jobacct_gather/none",
        "AccountingStorageType": "accounting_storage/none",
    }
    if description.release:
        settings["PluginDir"] = f"{folder}/plugins"
    if description.default_mb_per_cpu is not None:
        settings["DefMemPerCPU"] = str(description.default_mb_per_cpu)
    if description.accounting:
        settings |= {
            "JobAcctGatherType": "jobacct_gather/linux",
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": "localhost",
            # With munge this is the socket of a munged that is not the host's.
            "AccountingStoragePass": f"{private}/munge/socket",
            "AccountingStorageEnforce": "associations,limits,qos",
        }
    if types := [name for name in (description.gres, *description.other_gres) if name]:
        settings["GresTypes"] = ",".join(types)
    if description.licenses:
        settings["Licenses"] = description.licenses
    lines = [f"{name}={value}" for name, value in {**settings, **description.settings}.items()]
    lines += _nodes(description)
    for index, partition in enumerate(description.partitions):
        lines.append(
            f"PartitionName={partition.name} Nodes=ALL Default={'NO' if index else 'YES'} State=UP "
            f"MinNodes={partition.min_nodes} MaxNodes={partition.max_nodes or 'UNLIMITED'} "
            f"MaxTime={partition.max_time or 'UNLIMITED'} "
            f"PriorityTier={partition.priority_tier} PreemptMode={partition.preempt_mode} "
            f"GraceTime={partition.grace_s}"
        )
    return "\n".join(lines) + "\n"


def _nodes(description: Description) -> Iterator[str]:
    port = FIRST_PORT
    for group, names in description.node_groups:
        threads = group.threads_per_core
        resources = f"CPUs={group.cpus} RealMemory={group.memory_mb}"
        if threads > 1:
            resources += f" Sockets=1 CoresPerSocket={group.cpus // threads} ThreadsPerCore={threads}"
        gres = [f"{name}:{count}" for name, count in description.other_gres.items()]
        if description.gres:
            kind = f"{group.gres_type}:" if group.gres_type else ""
            gres = [f"{description.gres}:{kind}{group.gres_count}", *gres]
        resources += f" Gres={','.join(gres)}" if gres else ""
        if group.features:
            resources += f" Features={','.join(group.features)}"
        for name in names:
            state = "UNKNOWN" if name in description.nodes_at_work else "DOWN"
            yield f"NodeName={name} NodeHostname={name} NodeAddr=127.0.0.1 Port={port} State={state} {resources}"
            port += 1


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


def gres_conf(description: Description, folder: Path) -> str:
    """Return gres.conf, with device files: a bare count would make the nodes invalid."""
    lines = [f"Name={name} Count={count} Flags=CountOnly\n" for name, count in description.other_gres.items()]
    for group, names in description.node_groups if description.gres else ():
        where = f"NodeName={','.join(names)} " if len(description.node_groups) > 1 else ""
        kind = f" Type={group.gres_type}" if group.gres_type else ""
        devices = f"{folder / PRIVATE}/{description.gres}[0-{group.gres_count - 1}]"
        lines.append(f"{where}Name={description.gres}{kind} File={devices}\n")
    return "".join(lines)


def _associations(description: Description, user: str) -> str:
    """Return sacctmgr's words, a line each, that let the user submit with the cluster file's account and QOS."""
    account, qos = description.account or "rehearsal", description.qos
    lines = [f"add account {account} cluster=trainjob", *([f"add qos {qos}"] if qos else [])]
    for name in dict.fromkeys(("root", user)):
        of_qos = f" qos=normal,{qos}" if qos else ""
        lines.append(f"add user {name} account={account} defaultaccount={account}{of_qos}")
    return "".join(f"{line}\n" for line in lines)
