"""What a kind of cluster is, is known in its folder: everybody else asks for facts."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.support import ROOT
from trainjob.cluster.base import Cluster
from trainjob.cluster.job import Job
from trainjob.kinds.lookup import UnreadClusterFile, catalog
from trainjob.kinds.table import KINDS, cluster_of

CLASSES = {kind.MODEL.__name__ for kind in KINDS.values()}
MODULES = [
    path
    for path in sorted((ROOT / "trainjob").rglob("*.py"))
    if path.relative_to(ROOT / "trainjob").parts[0] not in ("cluster", "kinds", "train", "launch")
]


def asks_for_a_kind(tree: ast.Module) -> Iterator[str]:
    """Yield the places that ask of which class a cluster is, or compare its kind with a word."""
    for node in ast.walk(tree):
        names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
        words = {inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant)}
        if isinstance(node, ast.MatchClass) or (isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance"):
            if names & CLASSES:
                yield ast.unparse(node)
        elif isinstance(node, ast.Compare) and words & set(KINDS) and ".kind" in ast.unparse(node):
            yield ast.unparse(node)


def test_nobody_asks_of_which_kind_a_cluster_is() -> None:
    asked = {str(path): found for path in MODULES if (found := list(asks_for_a_kind(ast.parse(path.read_text()))))}
    assert len(MODULES) > 100
    assert asked == {}


@pytest.mark.parametrize(
    "text", ["isinstance(x, (A, SlurmCluster))", "match x:\n case PodCluster(): pass", 'a.cluster.kind == "slurm"']
)
def test_such_a_question_is_found(text: str) -> None:
    assert list(asks_for_a_kind(ast.parse(text))) != []


@pytest.mark.parametrize("known", catalog(), ids=lambda known: known.name)
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
