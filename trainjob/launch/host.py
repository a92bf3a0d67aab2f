"""What must hold on this host before its ranks start: that it sees the run directory, and has the others' software.

Which Python, torch, CUDA, NCCL and driver a host has is read without importing torch, and is recorded in the run
directory for every host: results that differ between hosts are hard to explain without it.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from trainjob.contract import software
from trainjob.contract.errors import UserError
from trainjob.contract.files import read_word
from trainjob.contract.paths import RunPaths
from trainjob.contract.software import HostSoftware

# NFS clients keep what they know of a folder for up to 60 s (acdirmax), so a new file may show that late.
_LIMIT_S = 90.0
_POLL_S = 1.0
_DISTRIBUTIONS = ("torch", "numpy", "horovod", "poptorch")
_DRIVER_FILES = ("/sys/module/nvidia/version", "/proc/driver/nvidia/version")
_DRIVER_VERSION = re.compile(r"\b(\d+\.\d+(?:\.\d+)?)\b")
_CUDA_VERSION = re.compile(r"^cuda(?:\s*:[^=]*)?\s*=\s*['\"]([^'\"]+)['\"]", re.MULTILINE)


def node_name() -> str:
    """Return what Slurm calls this host, else what it calls itself."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def refuse_another_folder(paths: RunPaths, token: str, limit_s: float = _LIMIT_S) -> None:
    """Return once the folder holds `token`, which the job script wrote there. Raises UserError.

    Under srun the script itself does this, before it runs anything in the folder.
    """
    deadline = time.monotonic() + limit_s
    while read_word(paths.token) != token:
        if time.monotonic() > deadline:
            raise UserError(
                "host %s does not see run directory %s, or sees another one of that name"
                % (socket.gethostname(), paths.folder),
                "set runs_dir to storage that all nodes share",
            )
        time.sleep(_POLL_S)


def record_packages(paths: RunPaths, rank: int, attempt: int, required: bool) -> None:
    """Record what this host has, and compare it with the hosts that have recorded theirs.

    Differences are a warning on standard error, or a UserError where the cluster file says `same_packages: required`.
    """
    mine = HostSoftware(attempt=attempt, rank=rank, host=socket.gethostname(), packages=installed())
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


def installed() -> Dict[str, str]:
    """Return the versions that matter to a training on this host, by name."""
    versions: List[Tuple[str, Optional[str]]] = [("python", "%d.%d.%d" % sys.version_info[:3])]
    versions += [(name, _version(name)) for name in _DISTRIBUTIONS]
    of_nccl = (_version("nvidia-nccl-cu%d" % major) for major in (13, 12, 11))
    versions += [("cuda", _cuda()), ("nccl", next(filter(None, of_nccl), None)), ("driver", _driver())]
    return {name: version for name, version in versions if version}


def _version(distribution: str) -> Optional[str]:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _cuda() -> Optional[str]:
    """Return the CUDA that torch was built for, from the file in which torch keeps it."""
    for folder in sys.path:
        try:
            found = _CUDA_VERSION.search((Path(folder) / "torch" / "version.py").read_text(errors="replace"))
        except OSError:
            continue
        return found.group(1) if found else None
    return None


def _driver() -> Optional[str]:
    for file in _DRIVER_FILES:
        try:
            found = _DRIVER_VERSION.search(Path(file).read_text(errors="replace"))
        except OSError:
            continue
        return found.group(1) if found else None
    return None
