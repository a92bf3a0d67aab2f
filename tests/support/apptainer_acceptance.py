"""Run on an Apptainer machine: accepts a private Slurm whose ranks run in a container.

The image has no torch, so it sees this interpreter and this checkout as others see a site's software. What
`trainjob cluster accept` prints is printed, its evidence last.

Usage: python apptainer_acceptance.py BASE.tar [WORDS of `cluster accept`…]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import trainjob
from tests.support.apptainer_under_slurm import unpacked
from trainjob.kinds.lookup import find
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.rehearse.slurm.description import description_of
from trainjob.rehearse.slurm.private import private_slurm

_CLUSTER = """
kind: slurm
nodes: {{count: 2, accelerator: cpu, cpus: 2, memory_gb: 2}}
request: none
required_directives: []
directives: {{partition: main}}
runs_dir: {home}/runs
container: {{runtime: apptainer, image: {home}/image, mounts: [{prefix}, {checkout}]}}
python: {python}
"""
_LIMIT_S = 1000.0


def main(archive: str, *words: str) -> int:
    """Accept it, and return the exit code."""
    home = unpacked(archive)
    file = home / "contained.yaml"
    checkout = Path(trainjob.__file__).parent.parent
    file.write_text(_CLUSTER.format(home=home, prefix=sys.base_prefix, checkout=checkout, python=sys.executable))
    cluster = find(str(file)).cluster
    assert isinstance(cluster, SlurmCluster)
    with private_slurm(description_of(cluster, nodes_needed=2)) as slurm:
        accept = ["trainjob", "cluster", "accept", str(file), "--json", *words]
        environ = {"PATH": os.environ["PATH"], "HOME": str(home)}
        ended = slurm.run(accept, folder=home / "project", environment=environ, timeout_s=_LIMIT_S, check=False)
    print(ended.stderr, ended.text, sep="\n")
    return ended.code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
