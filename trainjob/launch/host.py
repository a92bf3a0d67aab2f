"""Checks this host before its ranks start: it must see the run directory, and have the same software as the others.

Which Python, torch, CUDA, NCCL and driver a host has is recorded in the run directory for every host: results that
differ between hosts are hard to explain without it.
"""

from __future__ import annotations

import os
import sys
import time

from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.launch.installed import installed
from trainjob.records import attempts, software
from trainjob.records.software import HostSoftware

# NFS clients cache a folder for up to 60 s (acdirmax), so a new file may appear that late.
_LIMIT_S = 90.0
_POLL_S = 1.0


def own_name() -> str:
    """Return this host's own name."""
    return os.uname().nodename


def node_name() -> str:
    """Return Slurm's name of this host, else its own."""
    return os.environ.get("SLURMD_NODENAME") or own_name()


def refuse_another_folder(paths: RunPaths, token: str, limit_s: float = _LIMIT_S) -> None:
    """Return once the folder holds `token`, which the job script wrote there. Raises UserError.

    Under srun the script itself does this, before it runs anything in the folder.
    """
    deadline = time.monotonic() + limit_s
    while attempts.token(paths) != token:
        if time.monotonic() > deadline:
            raise UserError(
                "host %s does not see run directory %s, or sees another one of that name" % (own_name(), paths.folder),
                "set runs_dir to storage that all nodes share",
            )
        time.sleep(_POLL_S)


def record_packages(paths: RunPaths, rank: int, attempt: int, required: bool) -> None:
    """Record this host's software, and compare it with that of the hosts that have recorded theirs.

    Differences are a warning on standard error, or a UserError if the cluster file says `same_packages: required`.
    """
    mine = HostSoftware(attempt=attempt, rank=rank, host=own_name(), packages=installed())
    try:
        kinds = software.record(paths, mine)
    except OSError as error:
        sys.stderr.write("trainjob: the packages of host %s can't be recorded: %s\n" % (mine.host, error))
        return
    problem = software.difference(software.recorded(paths)) if kinds > 1 else None
    if problem is None:
        return
    if required:
        raise UserError(problem.text, problem.cure, problem.code)
    sys.stderr.write("trainjob: WARNING: %s\n" % problem)
