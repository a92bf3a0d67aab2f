"""What ddp reduces, and when: once an update, whatever the accumulation, in buckets of the size asked for; profiles."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import TRAINJOB, ran
from tests.support.runs_at_work import log, make_run, train
from trainjob.records import profile

# A task beside which DDP writes down every bucket that it reduces.
COUNTED = """
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel
from trainjob.train.tasks.ffnet_toy import FfnetToy

made = DistributedDataParallel.__init__


def counted(self, *given, **named):
    made(self, *given, **named)
    self.register_comm_hook(None, reduced)


def reduced(state, bucket):
    with open("buckets", "a") as counts:
        counts.write("%d\\n" % bucket.buffer().numel())
    return allreduce_hook(state, bucket)


DistributedDataParallel.__init__ = counted


class Counted(FfnetToy):
    pass
"""
UPDATES = 3


def buckets(folder: Path, **changes: Any) -> list[int]:
    """Return the sizes of all buckets that both ranks reduced."""
    task = {"task": "counted:Counted", "entry": "counted:Counted", "data": None}
    options = {"width": 512, "layers": 4, "samples": 512}
    run = make_run(
        folder,
        {"counted.py": COUNTED},
        **task,
        task_options=options,
        samples=512,
        instances=2,
        updates=UPDATES,
        **changes,
    )
    assert train(run, 2) == [0, 0], log(run)
    return [int(line) for line in (run.project / "buckets").read_text().split()]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return buckets(tmp_path_factory.mktemp("plain") / "run")


def test_nothing_is_reduced_before_the_last_micro_batch(tmp_path: Path, plain: Any) -> None:
    assert buckets(tmp_path / "run", accumulation=4) == plain


def test_the_size_of_buckets_is_as_asked(tmp_path: Path, plain: Any) -> None:
    small = buckets(tmp_path / "run", bucket_mb=1)
    # 512 × 512 weights of four bytes fill a bucket of 1 MiB. The pass that settles the buckets has still one for all.
    assert len(small) > len(plain) >= 2 * UPDATES
    assert statistics.median(small) < min(plain)


def test_two_ranks_profile_their_updates_and_how_much_of_their_communication_is_not_hidden(tmp_path: Path) -> None:
    run = make_run(
        tmp_path / "run", instances=2, replicas=2, engine="ddp", updates=5, profile="2:4", profile_ranks="0,1"
    )
    assert train(run, 2) == [0, 0], log(run)
    both = profile.recorded(run)
    assert [(one.rank, one.first, one.last) for one in both] == [(0, 2, 4), (1, 2, 4)]
    for one in both:
        assert one.communication_s is not None
        assert one.exposed_s is not None
        assert 0 <= one.exposed_s <= one.communication_s <= one.seconds
        assert any(operator.name.startswith("aten::") for operator in one.operators)
        assert profile.trace_of(run, one.rank).exists()
    report = ran([TRAINJOB, "report", str(run.folder)], code=0).stdout
    assert "profile of rank 1" in report
    assert "not hidden" in report
