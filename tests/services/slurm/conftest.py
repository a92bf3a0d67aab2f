"""A private Slurm, and a site that has one and a login node behind ssh, for the modules that ask for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.slurm_jobs import GPU_NODES, POLL_S, cluster_file, parsed
from tests.support.slurm_site import Site, site
from tests.support.waiting import until
from trainjob.rehearse.slurm.description import description_of
from trainjob.rehearse.slurm.private import PrivateSlurm, private_slurm


@pytest.fixture(scope="module")
def slurm(request: pytest.FixtureRequest, needs: Callable[[str], Path]) -> Iterator[PrivateSlurm]:
    """Yield a Slurm with all nodes of the module's NODES, by default GPU_NODES."""
    needs("slurm")
    nodes = getattr(request.module, "NODES", GPU_NODES)
    described = parsed(cluster_file(nodes=nodes))
    with private_slurm(description_of(described, nodes_needed=described.capacity.most_hosts)) as made:
        yield made


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, needs: Callable[[str], Path]) -> Iterator[Site]:
    needs("slurm")
    needs("rsync")
    with site(tmp_path_factory.mktemp("site"), needs("sshd")) as made:
        yield made


@pytest.fixture
def no_stand_ins(cluster: Site) -> Iterator[None]:
    """Give Slurm's own programs back, and end what a test that failed has left: it would keep the nodes."""
    yield
    for program in ("sbatch", "squeue", "sacct", "scancel", "scontrol"):
        cluster.real(program)
    if left := cluster.run("squeue", "--noheader", "--format=%A").out.split():
        cluster.run("scancel", *left)
        until(lambda: not cluster.run("squeue", "--noheader").out, "what was left to end", poll_s=POLL_S)
