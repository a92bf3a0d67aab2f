"""The event log of job scripts: what it tells of attempts, and that damaged lines tell nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainjob.contract.paths import RunPaths
from trainjob.records import events
from trainjob.records.events import Attempt, Event


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return RunPaths(tmp_path)


def written(paths: RunPaths, *lines: str) -> None:
    paths.events.write_text("".join(line.replace("|", "\t") + "\n" for line in lines))


def test_damaged_lines_are_passed_over_and_a_detail_may_hold_anything(paths: RunPaths) -> None:
    assert events.read(paths) == []
    written(
        *(paths, "1.5|1|began|n1|n2", "x|1|ended|FAILED", "2.5|x|ended|FAILED", "2.5|1|ended", "-1|1|ended|FAILED"),
        *("1e9|1|ended|FAILED", "2|-1|ended|FAILED", "1234567890123|1|ended|FAILED", "3|1234567890|ended|FAILED"),
        "3|2|began|",
    )
    assert events.read(paths) == [Event(1.5, 1, "began", "n1\tn2"), Event(3.0, 2, "began", "")]
    paths.events.unlink()
    paths.events.mkdir()
    assert events.read(paths) == []


def test_attempts_are_told_from_their_events(paths: RunPaths) -> None:
    written(
        *(paths, "10|2|began|n2", "5|1|began|n1", "6|1|signal|TERM", "8|1|ended|FAILED 1 it failed, so", "9|7|ended|X"),
        *("9|3|began|n3", "8|3|ended|COMPLETED 0", "11|4|began|", "12|4|lost|", "7|5|lost|"),
    )
    assert events.attempts(events.read(paths)) == [
        Attempt(1, 5.0, 8.0, "FAILED", "n1", "it failed, so"),
        Attempt(2, 10.0, None, None, "n2"),
        Attempt(3, 9.0, 9.0, "COMPLETED", "n3"),  # by a clock that was set back
        Attempt(4, 11.0, 12.0, "LOST", "", "its job script noted no end: its node failed, or something killed it"),
    ]
    assert [events.why_ended(events.read(paths), number) for number in (1, 2, 3, 9)] == ["it failed, so", "", "", ""]


@pytest.mark.parametrize(
    ("lines", "is_signalled"),
    [
        ([], False),
        (["1|1|began|n1"], False),
        (["1|1|began|n1", "2|1|signal|TERM"], True),
        (["1|1|began|n1", "2|1|signal|USR1"], False),
        (["1|1|began|n1", "2|1|signal|HUP"], True),
        (["1|1|began|n1", "2|1|signal|TERM", "3|1|launch|", "4|1|compiled|"], True),
        (["1|1|began|n1", "2|1|signal|TERM", "3|1|asked|TERM", "4|1|bypassed|USR1 the launcher of rank 0"], True),
        (["1|1|began|n1", "2|1|signal|TERM", "3|2|began|n1"], True),
        (["1|1|began|n1", "2|1|signal|TERM", "3|1|ended|CANCELLED 143"], False),
        (["1|2|signal|TERM"], False),
    ],
)
def test_an_attempt_that_was_told_to_end_and_has_not_is_known(
    paths: RunPaths, lines: list[str], is_signalled: bool
) -> None:
    written(paths, *lines)
    assert events.was_signalled(events.read(paths), 1) == is_signalled


def test_the_last_image_and_every_retry_are_known(paths: RunPaths) -> None:
    written(paths, "1|1|began|n1")
    assert (events.image(events.read(paths)), events.retries(events.read(paths))) == (None, [])
    written(paths, "1|1|image|sha256:a", "2|2|image|sha256:b", "3|1|retry|mem --mem=8G", "4|2|retry|time --time=9 x")
    assert events.image(events.read(paths)) == "sha256:b"
    assert events.retries(events.read(paths)) == [
        {"attempt": "1", "what": "mem", "option": "--mem=8G"},
        {"attempt": "2", "what": "time", "option": "--time=9 x"},
    ]


def test_the_nodes_that_later_attempts_avoid_are_named(paths: RunPaths) -> None:
    assert events.excluded_nodes(paths) == []
    paths.excluded_nodes.write_text("n1\t2\tits GPU\tis lost\nn2\t3\n")
    assert events.excluded_nodes(paths) == [{"node": "n1", "attempt": "2", "why": "its GPU\tis lost"}]


def test_what_a_job_script_is_to_take_up_is_a_word_for_it(paths: RunPaths) -> None:
    events.blame_node(paths, "n1", "its GPU is lost")
    events.note_out_of_memory(paths)
    assert paths.bad_node.read_text() == "n1 its GPU is lost\n"
    assert paths.out_of_memory.read_text() == ""
