"""A pod in miniature: stand-ins on PATH and PYTHONPATH, and a V-IPU controller as the cluster file describes it."""

from __future__ import annotations

import getpass
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainjob.cluster.base import Cluster, IpuCluster
from trainjob.cluster.ipus import Vipu
from trainjob.contract import package
from trainjob.contract.environment import STANDIN_VIPU
from trainjob.contract.errors import UserError
from trainjob.machines import process
from trainjob.rehearse import gpus

_STAND_INS = package.companion("standins")
_RC_FILE = Path(__file__).with_name("bashrc.sh")
# The programs of an SDK and a V-IPU controller that have a stand-in: standins/pod/__main__.py runs each.
PROGRAMS = ("poprun", "vipu", "vipu-admin", "gc-monitor", "gc-info", "gc-inventory")


def environment(place: Path, cluster: IpuCluster, ipus: int, redirects: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a pod of `ipus` IPUs, whose programs and state are written to the folder `place`."""
    write_programs(place / "bin", sys.executable)
    _write_site(place / "vipu", cluster.vipu, ipus)
    python = redirects["TRAINJOB_PYTHON"]
    folders = [str(folder) for folder in python_folders(horovod_is_there=_has_horovod(python))]
    theirs = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        **redirects,
        "PATH": os.pathsep.join([str(place / "bin"), process.search_path(python)]),
        "PYTHONPATH": os.pathsep.join([*folders, *([theirs] if theirs else [])]),
        STANDIN_VIPU: str(place / "vipu"),
    }


def write_programs(folder: Path, python: str) -> None:
    """Write the stand-ins of a pod's programs into `folder`, run by the interpreter `python` (3.8 or newer)."""
    folder.mkdir(parents=True, exist_ok=True)
    source = _STAND_INS / "pod"
    (folder / "standins").write_text(f"python={shlex.quote(python)} main={shlex.quote(str(source / '__main__.py'))}\n")
    for name in PROGRAMS:
        shutil.copyfile(source / "program.sh", folder / name)
        (folder / name).chmod(0o755)


def python_folders(*, horovod_is_there: bool) -> list[Path]:
    """Return what PYTHONPATH needs first for `import poptorch` and `import popdist`.

    Horovod is stood in for as well, unless the interpreter has the real one and a real mpirun starts the instances.
    """
    return [_STAND_INS / "ipu"] if horovod_is_there else [_STAND_INS / "ipu", _STAND_INS / "ipu" / "gloo"]


def _has_horovod(python: str) -> bool:
    # Without mpirun the real Horovod can't connect its ranks. It is looked up, not imported, which takes seconds.
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('horovod') is None)"
    return shutil.which("mpirun") is not None and process.run([python, "-c", look], check=False).code == 0


def _write_site(folder: Path, vipu: Vipu, ipus: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    # A partition named in the cluster file exists already; with an allocation, poprun creates one.
    exists = vipu.partition is not None and vipu.allocation is None and "%j" not in vipu.partition
    partitions = {vipu.partition: _partition(ipus)} if exists else {}
    site = {"ipus": ipus, "allocations": [vipu.allocation or "default"], "partitions": partitions}
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


def run(name: str, cluster: Cluster, words: Sequence[str], redirects: Mapping[str, str]) -> int:
    """Return the exit code of `words`, run in the current folder with the stand-ins of the pod `name`.

    Raises UserError if the cluster is not a pod.
    """
    with _pod(name, cluster, redirects) as environ:
        return process.show(words, environment=environ)


def shell(name: str, cluster: Cluster, redirects: Mapping[str, str]) -> int:
    """Return the exit code of the user's shell with a pod's stand-ins, or with a node's stand-in GPUs.

    Raises UserError for a cluster that has neither.
    """
    if cluster.has_scheduler and cluster.accelerator == "gpu":
        python = redirects["TRAINJOB_PYTHON"]
        return _gpu_shell(name, cluster, gpus.of_path(python) if python == sys.executable else python)
    with _pod(name, cluster, redirects) as environ:
        return _shell(name, environ)


def _shell(name: str, environ: Mapping[str, str]) -> int:
    program = os.environ.get("SHELL") or "/bin/sh"
    if Path(program).name != "bash":
        return process.show([program], environment=environ)
    chosen = {"CLUSTER": name, "PATH": environ["PATH"], "PYTHONPATH": environ["PYTHONPATH"]}
    told = {f"TRAINJOB_REHEARSED_{word}": value for word, value in chosen.items()}
    return process.show([program, "--rcfile", str(_RC_FILE)], environment={**environ, **told})


def _gpu_shell(name: str, cluster: Cluster, python: str) -> int:
    with gpus.visible_here(python, cluster.accelerators_per_host or 0, cluster.accelerator_type) as place:
        code = _shell(name, os.environ)
        for line in gpus.Usage.read(place).lines():
            sys.stdout.write(line + "\n")
    return code


@contextmanager
def _pod(name: str, cluster: Cluster, redirects: Mapping[str, str]) -> Iterator[dict[str, str]]:
    pod = cluster.ipu_keys if cluster.hosts_are_named else None
    if pod is None:
        raise UserError(
            f"cluster {name} is of kind {cluster.kind}, and there are stand-ins for a pod's programs, or a Slurm "
            "cluster's GPUs, only",
            "Name a pod or such a cluster, as in --cluster pod16",
        )
    with tempfile.TemporaryDirectory(prefix="trainjob-pod-") as place:
        yield environment(Path(place), pod, pod.capacity.ipus or 0, redirects)
