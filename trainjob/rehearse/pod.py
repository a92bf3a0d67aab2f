"""A pod in miniature: stand-ins for poprun, vipu, poptorch and popdist on the paths, and a rehearsal with them."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from trainjob.cluster.base import Cluster, IpuCluster
from trainjob.contract import clock, package, states
from trainjob.contract.environment import STANDIN_VIPU
from trainjob.contract.errors import UserError
from trainjob.kinds.pod import PodCluster
from trainjob.machines import process, processes
from trainjob.machines.access import HERE
from trainjob.planning.words import quantity
from trainjob.records import attempts
from trainjob.rehearse import gpus
from trainjob.rehearse.base import COMPLETED, Rehearsal, RehearsalVerdict, Stopwatch, last_output, progress_of

_POLL_S = 0.1
_STAND_INS = package.companion("standins")
_RC_FILE = Path(__file__).with_name("bashrc.sh")
# The programs of an SDK and a V-IPU controller that have a stand-in: standins/pod/__main__.py runs each.
PROGRAMS = ("poprun", "vipu", "vipu-admin", "gc-monitor", "gc-info", "gc-inventory")


def rehearse(rehearsal: Rehearsal) -> RehearsalVerdict:
    """Return how the job ended; none of its processes is left. Raises UserError for --inject, which needs Slurm."""
    cluster = PodCluster.of(rehearsal.request.cluster)
    if rehearsal.inject is not None:
        raise UserError(
            f"--inject {rehearsal.inject} works on Slurm clusters only", "Leave it out, or kill a rank yourself"
        )
    stopwatch = Stopwatch()
    with tempfile.TemporaryDirectory(prefix="trainjob-pod-") as place:
        environ = environment(Path(place), cluster, cluster.ipus, rehearsal.redirects)
        paths = rehearsal.create()
        rehearsal.say(f"stand-ins replace poprun, vipu, poptorch and popdist of {rehearsal.request.plan.cluster}")
        stopwatch.done("stand-ins on the paths")
        words = ["bash", rehearsal.rendered.script]
        script = process.start_detached(words, folder=paths.folder, log=paths.scheduler_log, environment=environ)
        try:
            while os.waitpid(script, os.WNOHANG) == (0, 0):
                if paths.progress.exists():
                    stopwatch.done("training")
                clock.sleep(_POLL_S)
        finally:
            processes.kill(HERE, str(paths.folder))
    stopwatch.done("ended")
    state = attempts.state(paths) or states.LOST
    same_bytes = rehearsal.has_rendered_files(paths)
    update = progress_of(paths).update
    if state == states.COMPLETED:
        outcome = f"{state} after {quantity(update, 'update')}" if update else state
    else:
        outcome = f"the job is {state}. {last_output(paths, is_shown=rehearsal.show is not None)}"
    return RehearsalVerdict(
        passed=state == states.COMPLETED and same_bytes,
        outcome=outcome,
        expected=COMPLETED,
        state=state,
        attempts=1,
        update=update,
        same_bytes=same_bytes,
        seconds=stopwatch.steps,
        folder=paths.folder,
    )


def environment(place: Path, cluster: IpuCluster, ipus: int, redirects: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a pod of `ipus` IPUs, whose programs and state are written to the folder `place`."""
    write_programs(place / "bin", sys.executable)
    vipu = cluster.vipu
    site: dict[str, object] = {"ipus": ipus, "allocations": [vipu.allocation or "default"], "partitions": {}}
    if vipu.partition is not None and vipu.allocation is None and "%j" not in vipu.partition:
        # A partition named in the cluster file exists already; with an allocation, poprun creates one.
        partition = {
            "size": ipus,
            "owner": getpass.getuser(),
            "state": "PS_ACTIVE",
            "allocation": "default",
            "reconfigurable": True,
            "gcds": 1,
            "sync_type": "c2-compatible",
        }
        site["partitions"] = {vipu.partition: partition}
    (place / "vipu").mkdir(parents=True, exist_ok=True)
    (place / "vipu" / "site.json").write_text(json.dumps(site))
    python = redirects["TRAINJOB_PYTHON"]
    # Without mpirun the real Horovod can't connect its ranks.
    has_horovod = shutil.which("mpirun") is not None and gpus.has_package(python, "horovod")
    folders = [str(folder) for folder in python_folders(has_horovod=has_horovod)]
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


def python_folders(*, has_horovod: bool) -> list[Path]:
    """Return what PYTHONPATH needs first for `import poptorch` and `import popdist`.

    Horovod is stood in for as well, unless the interpreter has the real one and a real mpirun starts the instances.
    """
    return [_STAND_INS / "ipu"] if has_horovod else [_STAND_INS / "ipu", _STAND_INS / "ipu" / "gloo"]


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
        count, kind = cluster.accelerators_per_host or 0, cluster.accelerator_type
        python = redirects["TRAINJOB_PYTHON"]
        if python == sys.executable:  # nothing else was asked for
            python = gpus.of_path(python)
        with gpus.visible_here(python, count, kind) as place:
            code = _shell(name, os.environ)
            for line in gpus.Usage.read(place).lines():
                sys.stdout.write(line + "\n")
        return code
    with _pod(name, cluster, redirects) as environ:
        return _shell(name, environ)


def _shell(name: str, environ: Mapping[str, str]) -> int:
    program = os.environ.get("SHELL") or "/bin/sh"
    if Path(program).name != "bash":
        return process.show([program], environment=environ)
    chosen = {"CLUSTER": name, "PATH": environ["PATH"], "PYTHONPATH": environ["PYTHONPATH"]}
    variables = {f"TRAINJOB_REHEARSED_{word}": value for word, value in chosen.items()}
    return process.show([program, "--rcfile", str(_RC_FILE)], environment={**environ, **variables})


@contextlib.contextmanager
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
