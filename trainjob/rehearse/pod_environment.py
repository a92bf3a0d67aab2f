"""A pod in small: stand-ins on PATH and PYTHONPATH, and a V-IPU controller that has what the cluster file says."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainjob.cluster.ipu_place import IpuPlace, Vipu
from trainjob.rehearse import programs
from trainjob.rehearse.standin_paths import python_folders
from trainjob.submit import process


def environment(place: Path, cluster: IpuPlace, ipus: int, redirects: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a pod of `ipus` IPUs that stands in `place`, a folder of its own."""
    programs.write(place / "bin", sys.executable)
    _write_site(place / "vipu", cluster.vipu, ipus)
    python = redirects.get("TRAINJOB_PYTHON") or sys.executable
    folders = [str(folder) for folder in python_folders(horovod_is_there=_has_horovod(python))]
    theirs = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        **redirects,
        "PATH": os.pathsep.join([str(place / "bin"), process.search_path()]),
        "PYTHONPATH": os.pathsep.join([*folders, *([theirs] if theirs else [])]),
        "TRAINJOB_STANDIN_VIPU": str(place / "vipu"),
    }


def _has_horovod(python: str) -> bool:
    # Looked for and not imported. Without mpirun the real one has nothing to meet by.
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('horovod') is None)"
    return shutil.which("mpirun") is not None and process.run([python, "-c", look], check=False).code == 0


def _write_site(folder: Path, vipu: Vipu, ipus: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    # A partition that a site names is there; where it names an allocation, poprun makes one.
    is_there = vipu.partition is not None and vipu.allocation is None and "%j" not in vipu.partition
    there = {vipu.partition: _partition(ipus)} if is_there else {}
    site = {"ipus": ipus, "allocations": [vipu.allocation or "default"], "partitions": there}
    (folder / "site.json").write_text(json.dumps(site))


def _partition(ipus: int) -> dict[str, Any]:
    return {
        "size": ipus,
        "owner": getpass.getuser(),
        "state": "PS_ACTIVE",
        "allocation": "default",
        "reconfigurable": True,
        "gcds": 1,
        "sync_type": "c2-compatible",
    }
