"""A site with a private Slurm and a login node behind ssh, for the modules that ask for `cluster`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.slurm_jobs import POLL_S
from tests.support.slurm_site import Site, site
from tests.support.waiting import until


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
