"""IPUs under a private Slurm: stand-ins for poprun and vipu, sbatch's --ipus, and a V-IPU partition for each job."""

from __future__ import annotations

import getpass
import shutil
from collections.abc import Mapping
from pathlib import Path

from trainjob.contract import quoting
from trainjob.contract.environment import STANDIN_HOSTS, STANDIN_USER, STANDIN_VIPU
from trainjob.contract.errors import UserError
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.machines import process
from trainjob.rehearse import pod
from trainjob.rehearse.slurm import root

# Open MPI ignores the loopback interface, and the network of a private Slurm has no other.
LOOPBACK = {f"OMPI_MCA_{layer}_tcp_if_include": "lo" for layer in ("oob", "btl")}
# sbatch's --ipus comes from Graphcore's plugin. Ours accepts the option and does nothing.
_OPTION_SOURCE = Path(__file__).with_name("ipus_option.c")
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
    found = {}
    if cluster.request == "ipus":
        _compile_option(place / "ipus.so", release)
        (place / "plugstack.conf").write_text(f"required {place / 'ipus.so'}\n")
        found["PlugStackConfig"] = str(place / "plugstack.conf")
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


def _compile_option(plugin: Path, release: str | None) -> None:
    """Compile the plugin that makes sbatch accept --ipus. Raises UserError without a compiler."""
    compiler = shutil.which("cc", path=process.search_path())
    if compiler is None:
        raise UserError(
            "the cluster requests IPUs with sbatch's --ipus. A stock Slurm accepts that option only with a plugin, and "
            "this machine has no C compiler to build one",
            "On Debian or Ubuntu: sudo apt-get install gcc libc6-dev; or rehearse with request: gres, which requests "
            "the same number",
        )
    # Plugins have the version as a number: 22.05.8 is 0x160508. Slurm compares only the release.
    version = f"{release}.0" if release else root.installed_version() or "0"
    number = "0x" + "".join(f"{int(part):02x}" for part in version.split("."))
    options = ["-shared", "-fPIC", f"-DSLURM_VERSION={number}"]
    process.run([compiler, *options, "-o", str(plugin), str(_OPTION_SOURCE)])
