"""Times as Slurm writes them, in seconds."""

from __future__ import annotations

import pytest

from tests.support.cases import each
from trainjob.cluster.slurm_text import duration, seconds


@each(
    ("time", "expected"),
    [
        ("90", 5400),
        ("90:30", 5430),
        ("04:00:00", 14400),
        ("1:02:03", 3723),
        ("1-12", 129600),
        ("1-12:30", 131400),
        ("2-00:00:01", 172801),
        ("UNLIMITED", None),
        ("INFINITE", None),
    ],
)
def test_every_form_that_slurm_reads(time: str, expected: int | None) -> None:
    assert seconds(time) == expected


@pytest.mark.parametrize("total_s", [0, 59, 3600, 108000])
def test_what_is_written_reads_back(total_s: int) -> None:
    assert seconds(duration(total_s)) == total_s
