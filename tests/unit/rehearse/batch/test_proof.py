"""The comparison of a batch file's ranks with those of the job that it was adopted as."""

from __future__ import annotations

from pathlib import Path

from trainjob.rehearse.batch.proof import Proof, Saw, requested
from trainjob.scripts.request import Site
from trainjob.scripts.script import script_of

FIRST = Saw(0, 2, 0, 0, 4, "8", "python train.py", (("A", "1"),))


def test_equal_ranks_prove_the_job() -> None:
    ranks = [FIRST, FIRST._replace(rank=1)]
    proof = Proof(ranks, list(ranks))
    assert (proof.is_equal, proof.differences()) == (True, [])


def test_each_difference_is_told() -> None:
    other = FIRST._replace(world_size=4, environment=())
    proof = Proof([FIRST], [other])
    assert not proof.is_equal
    assert proof.differences() == [
        "world size of rank 0: 2, and 4 in the job",
        "environment of rank 0: A=1, and nothing in the job",
    ]
    assert Proof([FIRST], [FIRST, FIRST]).differences() == ["the file starts 1 ranks, and the job 2"]


def test_a_side_that_starts_nothing_proves_nothing() -> None:
    proof = Proof((), (), "the job started no rank: it printed nothing")
    assert (proof.is_equal, proof.differences()) == (False, ["the job started no rank: it printed nothing"])
    assert not Proof((), ()).is_equal


def test_what_tells_a_rank_its_place_is_not_requested() -> None:
    text = "export A=1 MASTER_PORT=2 RANK=0\nB=3\nC=4 srun python train.py\n"
    text += "srun bash -c 'export LOCAL_RANK=1 D=5; python train.py'\n"
    assert requested(script_of(Path("x"), text.encode(), Site())) == {"A", "C"}
