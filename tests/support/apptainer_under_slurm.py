"""Run on an Apptainer machine: submits a job in a container to a private Slurm there, and prints what it left.

Usage: python apptainer_under_slurm.py BASE.tar
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from trainjob.cluster.lookup import find
from trainjob.cluster.models import SlurmCluster
from trainjob.rehearse.slurm.description import twin_of
from trainjob.rehearse.slurm.private import PrivateSlurm, private_slurm

_CLUSTER = """
kind: slurm
nodes: {{count: 2, accelerator: cpu, cpus: 2, memory_gb: 4}}
request: none
required_directives: []
directives: {{partition: main}}
runs_dir: {home}/runs
container: {{runtime: apptainer, image: {home}/image}}
python: python3
"""
_RANK = (
    'echo "rank $RANK: $(. /etc/os-release; echo "$VERSION_CODENAME"), $(python3 --version), $(hostname), [$HOSTILE]"'
)


def main(archive: str) -> None:
    """Submit, wait, and print the state and the ranks' lines."""
    home = Path.home()
    for folder in ("image", "project"):
        (home / folder).mkdir()
    # An ordinary user makes no devices.
    subprocess.run(
        ["tar", "--extract", "--exclude=./dev/*", f"--file={archive}", f"--directory={home}/image"], check=True
    )
    file = home / "site.yaml"
    file.write_text(_CLUSTER.format(home=home))
    cluster = find(str(file)).cluster
    assert isinstance(cluster, SlurmCluster)
    with private_slurm(twin_of(cluster, nodes_needed=2)) as slurm:
        hostile = "a \"b\" $(touch /tmp/injected) 'c'"
        submit = ["submit", "--cluster", str(file), "--instances", "4", "--hosts", "2", "--env", f"HOSTILE={hostile}"]
        print(_trainjob(slurm, *submit, "--", "sh", "-c", _RANK))
        deadline = time.monotonic() + 400
        while "RUNNING" in (state := _trainjob(slurm, "status", "last")) or "PENDING" in state:
            assert time.monotonic() < deadline, state
            time.sleep(0.5)
        print(state, _trainjob(slurm, "logs", "last"))
    print("injected" if Path("/tmp/injected").exists() else "nothing was injected")


def _trainjob(slurm: PrivateSlurm, *words: str) -> str:
    environ = {"PATH": os.environ["PATH"], "HOME": str(Path.home())}
    ended = slurm.run(["trainjob", *words], folder=Path.home() / "project", environment=environ, check=False)
    return ended.text + ended.stderr


if __name__ == "__main__":
    main(sys.argv[1])
