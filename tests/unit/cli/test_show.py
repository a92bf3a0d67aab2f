"""What commands print."""

from __future__ import annotations

import pytest

from tests.support.printed_json import reported
from trainjob.watch import show


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.123, "0.12 s"), (34.56, "34.6 s"), (725, "12 min 5 s"), (12_000, "3 h 20 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert show.seconds(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(999, "999 B"), (115_000, "115.0 kB"), (3_200_000_000, "3.2 GB")])
def test_sizes(count: int, text: str) -> None:
    assert show.size(count) == text


def test_columns_are_aligned_and_lines_have_no_blanks_at_their_end(capsys: pytest.CaptureFixture[str]) -> None:
    show.table(("RUN", "STATE"), [("abcd-job", "LOST"), ("x", "-")])
    assert capsys.readouterr().out == "RUN       STATE\nabcd-job  LOST\nx         -\n"


def test_json_keeps_every_letter(capsys: pytest.CaptureFixture[str]) -> None:
    show.as_json({"name": "größe"})
    printed = capsys.readouterr().out
    assert "größe" in printed
    assert reported(printed) == {"name": "größe"}
