"""Every kind of cluster has every fact that others ask for."""

from __future__ import annotations

import pytest

from tests.support import ROOT
from tests.support.cases import each
from trainjob.cluster.base import Cluster
from trainjob.cluster.job import Job
from trainjob.kinds.lookup import UnreadClusterFile, catalog
from trainjob.kinds.table import KINDS, cluster_of


@each("known", catalog())
def test_every_kind_has_every_fact(known: UnreadClusterFile) -> None:
    cluster = known.read().cluster
    facts = {name: getattr(cluster, name) for name, value in vars(Cluster).items() if isinstance(value, property)}
    assert facts["accelerator"] in ("gpu", "ipu", "cpu")
    assert cluster.names_of_hosts(1)
    assert cluster.time_limit_of(Job(time_limit="01:00:00")) == ("01:00:00" if cluster.has_scheduler else None)


def test_who_starts_the_ranks() -> None:
    starters = {known.name: known.read().cluster.ranks_by for known in catalog()}
    assert starters == {
        **dict.fromkeys(("pod4", "pod16", "pod64", "pod128", "pod256", "slurm-ipu"), "poprun"),
        "hosts-gpu": "mpirun",
        "local": "launcher",
        **dict.fromkeys(("slurm-8gpu", "slurm-gh200", "slurm-gpu", "slurm-mi250x"), "srun"),
    }


def test_every_kind_has_its_template() -> None:
    for kind in KINDS.values():
        assert (ROOT / "templates" / kind.TEMPLATE).exists()


def test_a_cluster_of_another_kind_has_no_keys_of_this_one() -> None:
    with pytest.raises(TypeError, match="local"):
        KINDS["slurm"].MODEL.of(cluster_of({"kind": "local"}))
