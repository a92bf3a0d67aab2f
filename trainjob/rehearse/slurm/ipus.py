"""IPUs under a private Slurm: stand-ins for poprun and vipu, and the V-IPU partitions that a site's Slurm has ready."""

from __future__ import annotations

import getpass
import shlex
from collections.abc import Mapping
from pathlib import Path

from trainjob.cluster.models import SlurmCluster
from trainjob.rehearse import pod_environment
from trainjob.rehearse.slurm import ipus_option
from trainjob.rehearse.slurm.mpi import LOOPBACK
from trainjob.rehearse.standins.pod import mpirun, server
from trainjob.render import quoting


def environment(place: Path, cluster: SlurmCluster, redirects: Mapping[str, str]) -> dict[str, str]:
    """Return what sbatch must hand on for the stand-ins in `place`, a folder of its own, which is made ready."""
    ipus = cluster.nodes.count * cluster.nodes.accelerators
    made = pod_environment.environment(place, cluster, ipus, redirects)
    # Nodes of a private Slurm have names and daemons of their own: mpirun reaches them.
    own = {name: made[name] for name in ("PATH", "PYTHONPATH", server.FOLDER)}
    return {**own, mpirun.HOSTS: "real", **LOOPBACK}


def settings(place: Path, cluster: SlurmCluster, job_ipus: int) -> dict[str, str]:
    """Return slurm.conf's settings by which Slurm takes --ipus and makes each job its partition, where the site's does.

    Raises UserError where that takes a compiler and there is none.
    """
    option = ipus_option.settings(place) if cluster.request == "ipus" else {}
    return {**option, **_partition_of_each_job(place, cluster, job_ipus)}


def _partition_of_each_job(place: Path, cluster: SlurmCluster, job_ipus: int) -> dict[str, str]:
    partition = cluster.vipu.partition
    if partition is None or "%j" not in partition or cluster.vipu.allocation:
        return {}
    name = quoting.with_job_id(partition)
    scripts = {
        "Prolog": f"get partition {name} || vipu create partition {name} --size {job_ipus} --reconfigurable",
        "Epilog": f"get partition {name} && vipu remove partition {name}; exit 0",
    }
    for what, words in scripts.items():
        _write(place / what.lower(), place, f"vipu {words}")
    return {what: str(place / what.lower()) for what in scripts}


def _write(path: Path, place: Path, line: str) -> None:
    who = {server.FOLDER: str(place / "vipu"), server.USER: getpass.getuser()}
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in who.items())
    programs = shlex.quote(str(place / "bin"))
    path.write_text(f"#!/bin/sh\n{exports}PATH={programs}:$PATH\n({line}) >/dev/null 2>&1\n")
    path.chmod(0o755)
