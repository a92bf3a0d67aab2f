"""trainjob usage: what a person reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.run_folders import made
from trainjob.cli.main import main
from trainjob.records import usage
from trainjob.records.usage import UsageRecord

SLEEPS = {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE"}
SPINS = {**SLEEPS, "GOMP_SPINCOUNT": "1000"}


@pytest.mark.parametrize(
    ("ranks", "lines"),
    [
        ((SPINS, SPINS), ["threads: OMP_NUM_THREADS=2 OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=1000"]),
        (
            (SPINS, SLEEPS),
            [
                "threads: OMP_NUM_THREADS=2 OMP_WAIT_POLICY=PASSIVE",
                "threads: OMP_NUM_THREADS=2 OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=1000",
            ],
        ),
        (({}, {}), []),  # recorded by an earlier version
    ],
)
def test_each_way_in_which_threads_wait_is_shown_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ranks: tuple[dict[str, str], ...], lines: list[str]
) -> None:
    paths = made(tmp_path, "abcd-x")
    first = UsageRecord(attempt=1, rank=0, host="n1", pid=7, time=0.0, cpus=2, memory_bytes=1000)
    for rank, openmp in enumerate(ranks):
        usage.append(paths, replace(first, rank=rank, openmp=openmp))
    with pytest.raises(SystemExit):
        main(["usage", "abcd"])
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("threads:")] == lines
