"""This host: its name, the limits of its control groups, its software, and whether it sees the run directory.

Which Python, torch, CUDA, NCCL and driver a host has is recorded in the run directory for every host: results that
differ between hosts are hard to explain without it.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path
from typing import Dict, Iterator, Optional, TextIO, Tuple

from trainjob.contract import clock
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.records import attempts, software
from trainjob.records.software import HostSoftware

# NFS clients cache a folder for up to 60 s (acdirmax), so a new file may appear that late.
_LIMIT_S = 90.0
_POLL_S = 1.0
_MOST_CHARACTERS = 1 << 20
CGROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
_DISTRIBUTIONS = ("torch", "numpy", "horovod", "poptorch")
_OF_NCCL = ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11")
_DRIVER_FILES = ("/sys/module/nvidia/version", "/proc/driver/nvidia/version")
_DRIVER_VERSION = r"\b(\d+\.\d+(?:\.\d+)?)\b"
_CUDA_VERSION = r"(?m)^cuda(?:\s*:[^=]*)?\s*=\s*['\"]([^'\"]+)['\"]"
# Folders beside a distribution, and the files in them that state its version.
_METADATA = {".dist-info": "METADATA", ".egg-info": "PKG-INFO", ".egg": os.path.join("EGG-INFO", "PKG-INFO")}
_KINDS = tuple(_METADATA)


def own_name() -> str:
    """Return this host's own name."""
    return os.uname().nodename


def node_name() -> str:
    """Return Slurm's name of this host, else its own."""
    return os.environ.get("SLURMD_NODENAME") or own_name()


def text(file: "Path | str") -> str:
    """Return the content of a file, of a large one its beginning; nothing if it can't be read."""
    with contextlib.suppress(OSError), _opened(file) as stream:
        return stream.read(_MOST_CHARACTERS)
    return ""


def _opened(file: "Path | str") -> TextIO:
    return open(str(file), encoding="utf-8", errors="replace")


def own_folders(controller: str, top: Path = CGROUPS, membership: Path = _MEMBERSHIP) -> Iterator[Path]:
    """Yield the folders of this process's control groups of `controller` (memory, cpu), innermost first."""
    for line in text(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mounted = top / controller if controllers else top
        folder = mounted / path.lstrip("/")
        yield from (group for group in (folder, *folder.parents) if group == mounted or mounted in group.parents)


def cpu_quota(top: Path = CGROUPS, membership: Path = _MEMBERSHIP) -> Optional[int]:
    """Return how many CPUs' time this process and its group may use; None without a limit.

    A container whose CPU time is limited sees all the CPUs of its host.
    """
    quotas = []
    for folder in own_folders("cpu", top, membership):
        words = text(folder / "cpu.max").split()
        words = words or [text(folder / name).strip() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
        if len(words) == 2 and all(word.isdigit() and int(word) for word in words):
            quotas.append(int(words[0]) / int(words[1]))
    return max(1, int(min(quotas))) if quotas else None


def refuse_another_folder(paths: RunPaths, token: str, limit_s: float = _LIMIT_S) -> None:
    """Return once the folder holds `token`, which the job script wrote there. Raises UserError.

    Under srun the script itself does this, before it runs anything in the folder.
    """
    deadline = clock.monotonic() + limit_s
    while attempts.token(paths) != token:
        if clock.monotonic() > deadline:
            raise UserError(
                "host %s does not see run directory %s, or sees another one of that name" % (own_name(), paths.folder),
                "set runs_dir to storage that all nodes share",
            )
        clock.sleep(_POLL_S)


def record_packages(paths: RunPaths, rank: int, attempt: int, required: bool, python: Optional[str] = None) -> None:
    """Record this host's software, and compare it with that of the hosts that have recorded theirs.

    `python` is the ranks' interpreter where it is not the launcher's own.
    Differences are a warning on standard error, or a UserError if the cluster file says `same_packages: required`.
    """
    mine = HostSoftware(
        attempt=attempt, rank=rank, host=own_name(), packages=installed() if python is None else _installed_in(python)
    )
    try:
        kinds = software.record(paths, mine)
    except OSError as error:
        sys.stderr.write("trainjob: the packages of host %s can't be recorded: %s\n" % (mine.host, error))
        return
    problem = software.difference(software.recorded(paths)) if kinds > 1 else None
    if problem is not None and required:
        raise UserError(problem.text, problem.cure, problem.code)
    if problem is not None:
        sys.stderr.write("trainjob: WARNING: %s\n" % problem)


def _installed_in(python: str) -> Dict[str, str]:
    """Return what `installed` finds in another interpreter; nothing if that does not run."""
    import json
    import subprocess

    code = Path(__file__).resolve().parents[2]
    program = "import json; from trainjob.launch.host import installed; print(json.dumps(installed()))"
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    ended = subprocess.run([python, "-c", program], cwd=str(code), env=environ, stdout=subprocess.PIPE, check=False)
    return dict(json.loads(ended.stdout)) if ended.returncode == 0 else {}


def installed() -> Dict[str, str]:
    """Return the versions that matter for training on this host, by name, without importing what they are of."""
    found = distributions((*_DISTRIBUTIONS, *_OF_NCCL))
    versions: Dict[str, Optional[str]] = {"python": "%d.%d.%d" % sys.version_info[:3]}
    versions.update((name, found.get(name)) for name in _DISTRIBUTIONS)
    versions["nccl"] = next((found[name] for name in _OF_NCCL if name in found), None)
    # The CUDA that torch was built for is in a file of torch's.
    versions["cuda"] = _stated(_CUDA_VERSION, (os.path.join(folder, "torch", "version.py") for folder in sys.path))
    versions["driver"] = _stated(_DRIVER_VERSION, iter(_DRIVER_FILES))
    return {name: version for name, version in versions.items() if version}


def _stated(pattern: str, files: Iterator[str]) -> Optional[str]:
    """Return what `pattern` finds in the first file that can be read."""
    found = re.search(pattern, next(filter(None, map(text, files)), ""))
    return found.group(1) if found else None


def distributions(names: Tuple[str, ...]) -> Dict[str, str]:
    """Return the version of each distribution that is installed.

    By one listing of each folder: importlib.metadata, which lists it too, takes as long to load as Python to start.
    """
    found: Dict[str, str] = {}
    for folder in sys.path:
        try:
            entries = [os.path.join(folder, name) for name in os.listdir(folder or os.curdir) if name.endswith(_KINDS)]
        except OSError:  # not there, or a file: python311.zip
            continue
        for entry in (folder, *entries):
            stem, kind = os.path.splitext(os.path.basename(entry))
            name, _, version = stem.partition("-")
            name = name.replace("_", "-").lower()
            if name in names and name not in found and kind in _METADATA:
                found[name] = version.partition("-")[0]
                metadata = os.path.join(entry, _METADATA[kind])
                with contextlib.suppress(OSError, StopIteration), _opened(metadata) as lines:
                    found[name] = next(line[8:].strip() for line in lines if line.startswith("Version:"))
    return found
