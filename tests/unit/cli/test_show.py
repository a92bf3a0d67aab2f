"""What commands print."""

from __future__ import annotations

import io
import sys

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


@pytest.mark.parametrize(
    ("environ", "is_terminal", "coloured"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
        ({"TERM": "dumb"}, True, False),
    ],
)
def test_colours_are_for_terminals_and_those_who_ask(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], is_terminal: bool, coloured: bool
) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return is_terminal

    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout", Stream())
    with show.protected():
        print(show.state("FAILED", 8) + show.painted("\x1b[2J\ufdd0", "bold"))
        raw = show.raw(sys.stdout)
    assert isinstance(raw, io.StringIO)
    shown = r"\x1b[2J\ufdd0"
    assert raw.getvalue() == (f"\x1b[1;31mFAILED  \x1b[0m\x1b[1m{shown}\x1b[0m\n" if coloured else f"FAILED  {shown}\n")


@pytest.mark.parametrize(
    ("passed_s", "text"), [(-5, "0 s"), (59, "59 s"), (60, "1 min"), (7300, "2 h"), (200_000, "2 d")]
)
def test_ages(monkeypatch: pytest.MonkeyPatch, passed_s: float, text: str) -> None:
    monkeypatch.setattr("trainjob.contract.clock.time", lambda: 1_700_000_000.0 + passed_s)
    assert show.age("2023-11-14T22:13:20+00:00") == text
    assert show.age("no time") == show.age(None) == ""


def test_json_keeps_every_letter(capsys: pytest.CaptureFixture[str]) -> None:
    show.as_json({"name": "größe"})
    printed = capsys.readouterr().out
    assert "größe" in printed
    assert reported(printed) == {"name": "größe"}
