"""IPUs under a private Slurm: stand-ins for poprun and vipu, sbatch's --ipus, and a V-IPU partition for each job."""

from __future__ import annotations

import getpass
import shutil
from collections.abc import Mapping
from pathlib import Path

from trainjob.contract import quoting
from trainjob.contract.environment import STANDIN_HOSTS, STANDIN_USER, STANDIN_VIPU
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.rehearse import pod
from trainjob.rehearse.slurm import accepted_options

# Open MPI ignores the loopback interface, and the network of a private Slurm has no other.
LOOPBACK = {f"OMPI_MCA_{layer}_tcp_if_include": "lo" for layer in ("oob", "btl")}
# Its copies recognize by their names which of the two they are.
_JOB_PARTITION = Path(__file__).with_name("job_partition.sh")
_JOB_PARTITION_NAMES = {"Prolog": "prolog", "Epilog": "epilog"}


def environment(place: Path, cluster: SlurmCluster, redirects: Mapping[str, str]) -> dict[str, str]:
    """Return what sbatch must pass on to the job for the stand-ins, which are written to the folder `place`."""
    ipus = cluster.node.count * cluster.node.accelerators
    made = pod.environment(place, cluster, ipus, redirects)
    # Real mpirun reaches the nodes of a private Slurm: they have names and daemons of their own.
    own = {name: made[name] for name in ("PATH", "PYTHONPATH", STANDIN_VIPU)}
    return {**own, STANDIN_HOSTS: "real", **LOOPBACK}


def settings(place: Path, cluster: SlurmCluster, job_ipus: int, release: str | None = None) -> dict[str, str]:
    """Return the lines of slurm.conf for --ipus and for a partition made with each job, as the cluster file has them.

    Raises UserError if a C compiler is needed and missing.
    """
    found: dict[str, str] = {}
    if cluster.request == "ipus":
        # sbatch's --ipus comes from Graphcore's plugin.
        otherwise = "rehearse with request: gres, which requests the same number"
        found |= accepted_options.settings(place, ["ipus="], release, otherwise)
    partition = cluster.vipu.partition
    if partition is not None and "%j" in partition and not cluster.vipu.allocation:
        exports = {STANDIN_VIPU: str(place / "vipu"), STANDIN_USER: getpass.getuser()}
        values = {"programs": str(place / "bin"), "name": quoting.with_job_id(partition), "ipus": job_ipus}
        lines = [f"export {name}={quoting.word(value)}\n" for name, value in exports.items()]
        lines += [f"{name}={quoting.word(value)}\n" for name, value in values.items()]
        (place / "job-partition").write_text("".join(lines))
        for setting, script in _JOB_PARTITION_NAMES.items():
            shutil.copyfile(_JOB_PARTITION, place / script)
            (place / script).chmod(0o755)
            found[setting] = str(place / script)
    return found
