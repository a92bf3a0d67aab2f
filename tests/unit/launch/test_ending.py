"""What the end of an attempt means: the table in docs/protocol.md, row by row, and what is read of a run directory."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT
from tests.support.cases import each
from trainjob.contract import states
from trainjob.contract.paths import RunPaths
from trainjob.launch import ending
from trainjob.launch.ending import AttemptFacts, Ending, decide
from trainjob.records import attempts, progress
from trainjob.records.attempts import StopRequest
from trainjob.records.progress import ProgressRecord

PAGE = ROOT / "docs/protocol.md"
_ROW = re.compile(r"^\| (`[^|]*`) \| ([A-Z]+) \| ([a-z -]+) \|", re.MULTILINE)


def rows() -> list[tuple[str, str, str]]:
    text = PAGE.read_text().partition("## What an ending means")[2].partition("\n## ")[0]
    return [(facts.replace("`", ""), state, following) for facts, state, following in _ROW.findall(text)]


def facts_of(words: str) -> AttemptFacts:
    known: dict[str, Any] = {"max_attempts": 50}
    for word in words.split():
        name, equals, value = word.partition("=")
        default = getattr(AttemptFacts(), name)
        known[name] = True if isinstance(default, bool) else type(0 if default is None else default)(value)
        assert bool(equals) == (not isinstance(default, bool)), word
    return AttemptFacts(**known)


@each(("words", "state", "following"), rows())
def test_the_table_of_the_protocol_is_true(words: str, state: str, following: str) -> None:
    found = decide(facts_of(words))
    assert (found.state, found.next) == (state, following.strip()), found.why


def test_the_table_names_every_fact_and_every_state_that_an_attempt_can_end_in() -> None:
    named = {word.partition("=")[0] for words, _, _ in rows() for word in words.split()}
    unnamed = {"asked_at", "ended_at", "attempt"}
    assert named >= set(AttemptFacts()._asdict()) - unnamed - {"preemption", "max_attempts"}
    assert {state for _, state, _ in rows()} == {
        *(states.COMPLETED, states.REQUEUED, states.STOPPED, states.FAILED, states.CANCELLED, states.TIMEOUT)
    }
    assert {following for _, _, following in rows()} == {"-", "again", "elsewhere", "more mem", "more time", "forget"}


@each(("words", "state", "following"), rows())
def test_every_ending_that_the_state_does_not_explain_has_its_sentence(words: str, state: str, following: str) -> None:
    facts = facts_of(words)
    if state in (states.REQUEUED, states.STOPPED, states.TIMEOUT) or facts.asked:
        self_explaining = {states.CANCELLED, states.FAILED, states.COMPLETED}
        assert decide(facts).why or state in self_explaining, words


def test_the_sentence_says_when_it_was_asked_and_how_far_it_was() -> None:
    facts = facts_of("scheduler job=RUNNING asked=USR1 saved update=94 total=1000")
    found = decide(facts._replace(asked_at=1000.0, ended_at=1002.2))
    assert re.fullmatch(
        r"asked to stop at \d\d:\d\d:\d\d \(USR1\), ended with 0 2 s later, at 94 of 1,000: "
        r"interrupted: continued as attempt 2",
        found.why,
    )


@pytest.mark.parametrize(
    "facts", ["marker terminated", "asked=TERM saved", "terminated code=143", "signalled restarted"]
)
def test_the_sentence_names_a_preemption_however_the_ranks_ended(facts: str) -> None:
    assert "preempted by Slurm" in decide(facts_of(f"scheduler job=RUNNING preempted {facts}")).why


@each(
    ("facts", "why"),
    [
        ("code=1", ""),
        ("code=77 failed", ""),
        (
            "code=77",
            "asked to stop, which the run directory's disk did not take: interrupted: trainjob resume continues",
        ),
        ("asked=TERM code=143 done", "asked to stop (TERM), ended by it: complete"),
        ("asked=USR1 code=1 failed", "asked to stop (USR1), ended with 1: failed: trainjob resume starts it again"),
        ("asked=USR1 code=1 failed update=7", "asked to stop (USR1), ended with 1, at 7: failed: {starts}"),
        ("asked=USR1 trains", "asked to stop (USR1), ended with 0: complete"),
        ("asked=USR1 update=1 total=1", "asked to stop (USR1), ended with 0, at 1 of 1: complete"),
        ("asked=TERM saved", "asked to stop (TERM), ended with 0: interrupted: {continues}"),
        (
            "asked=TERM durable=320",
            "asked to stop (TERM), ended with 0: interrupted; nothing was written after the request: "
            "{continues_from} newest checkpoint, at about update 320",
        ),
        ("signalled limit", "the time limit has ended this attempt: {starts}"),
        (
            "signalled limit checkpoint durable=800",
            "the time limit has ended this attempt: {continues_from} newest checkpoint, at about update 800",
        ),
        ("signalled", "cancelled: {starts}"),
        ("signalled marker", "cancelled: {continues}"),
        ("signalled saved", "cancelled: {continues}"),
        ("signalled checkpoint", "cancelled: {continues}"),
        ("signalled checkpoint durable=1200", "cancelled: {continues_from} newest checkpoint, at about update 1,200"),
        ("scheduler job=COMPLETING restarted", "the job was requeued, and Slurm starts it again"),
        ("scheduler job=COMPLETING restarted preempted", "preempted by Slurm, and Slurm starts it again"),
        (
            "scheduler awaited",
            "srun returned 0, but not every rank has recorded its end, and the controller does not answer: "
            "a node may have failed",
        ),
        ("awaited", "srun returned 0, but not every rank has recorded its end: a node may have failed"),
        ("scheduler job=RUNNING marker", "its ranks have stopped, and left a checkpoint: continued as attempt 2"),
        ("scheduler job=RUNNING marker failed code=1", "the failure may not come again: continued as attempt 2"),
        (
            "scheduler job=RUNNING preempted code=143 preemption=cancel",
            "preempted by Slurm; no rank that handles USR1 or TERM was asked: {starts}",
        ),
        (
            "scheduler job=RUNNING preempted code=143 stop",
            "preempted by Slurm; it was asked to stop for good (trainjob cancel --stop): {starts}",
        ),
        (
            "scheduler signalled job=COMPLETING time_limit code=143 durable=1505 advanced",
            "the time limit has ended this attempt, after a checkpoint at about update 1,505: continued as attempt 2",
        ),
        (
            "scheduler signalled job=COMPLETING time_limit code=143 checkpoint durable=1505",
            "the time limit has ended this attempt; no rank that handles USR1 or TERM was asked, and no checkpoint "
            "shows that this attempt got further than the one before: {continues_from} newest checkpoint, at about "
            "update 1,505",
        ),
        (
            "scheduler job=RUNNING asked=USR1 durable=1200 advanced",
            "asked to stop (USR1), ended with 0: interrupted, after a checkpoint at about update 1,200: "
            "continued as attempt 2",
        ),
        (
            "scheduler signalled job=COMPLETING time_limit checkpoint kept",
            "the time limit has ended this attempt, after a checkpoint: continued as attempt 2",
        ),
        (
            "scheduler job=RUNNING announced asked=TERM code=1 failed advanced durable=50",
            "asked to stop (TERM), ended with 1: failed after the request, after a checkpoint at about update 50: "
            "continued as attempt 2",
        ),
        (
            "scheduler job=RUNNING asked=USR1 checkpoint kept kept_before",
            "asked to stop (USR1), ended with 0: interrupted; nothing was written after the request, and no checkpoint "
            "shows that this attempt got further than the one before: {continues}",
        ),
        (
            "scheduler job=RUNNING asked=USR1",
            "asked to stop (USR1), ended with 0: interrupted; nothing was written after the request: {starts}",
        ),
    ],
)
def test_the_sentence_says_what_happened_and_how_it_goes_on(facts: str, why: str) -> None:
    resume = "trainjob resume"
    words = {"starts": f"{resume} starts it again", "continues": f"{resume} continues from its checkpoint"}
    assert decide(facts_of(facts)).why == why.format(**words, continues_from=f"{resume} continues from its")


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    paths = RunPaths(tmp_path)
    paths.attempt.write_text("3\n")
    return paths


def test_facts_are_read_from_the_files_of_the_newest_attempt(paths: RunPaths) -> None:
    attempts.note_request(paths, 3, StopRequest("USR1", 12.5))
    attempts.note_request(paths, 3, StopRequest("TERM", 13.5))
    progress.write(paths, ProgressRecord(attempt=3, update=94, total_updates=1000))
    for path, text in ((paths.saved(3), ""), (paths.starts, "4 1 94\n"), (paths.failure, "")):
        path.write_text(text)
    shown = "shown=JobId=7 JobState=RUNNING Restarts=2 Reason=TimeLimit PreemptTime=2026-01-01T00:00:00 "
    found = ending.read(paths, ["code=143", "scheduler", "restarts=1", shown, "max_attempts=9"])
    assert found._replace(ended_at=None) == AttemptFacts(
        code=143, asked="USR1", asked_at=12.5, saved=True, update=94, total=1000, attempt=3, scheduler=True,
        job="RUNNING", restarted=True, time_limit=True, preempted=True, starts=4, max_attempts=9,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("durable", "began_at", "has_folder", "expected"),
    [
        (80, 60, False, (True, 80)),
        (None, 60, False, (True, 60)),
        (None, None, True, (True, 0)),
        (None, 0, False, (False, 0)),
    ],
)
def test_a_checkpoint_is_known_by_its_folder_or_by_the_progress(
    paths: RunPaths, durable: int | None, began_at: int | None, has_folder: bool, expected: tuple[bool, int]
) -> None:
    progress.write(paths, ProgressRecord(attempt=3, update=94, durable_update=durable, began_at=began_at))
    if has_folder:
        (paths.checkpoints / "update-00000080").mkdir(parents=True)
    found = ending.read(paths, ["code=0"])
    assert (found.checkpoint, found.durable) == expected


@pytest.mark.parametrize(
    ("starts", "durable", "advanced"),
    [
        ("1 1 \n", 80, True),
        ("1 1 \n", None, False),
        ("2 1 79\n", 80, True),
        ("2 1 80\n", 80, False),
        ("2 1 update-00000079\n", 80, True),
        ("2 1 update-00000080\n", 80, False),
        ("2 1 some words\n", 80, True),
    ],
)
def test_an_attempt_has_advanced_with_a_checkpoint_further_than_the_one_before_came(
    paths: RunPaths, starts: str, durable: int | None, advanced: bool
) -> None:
    paths.starts.write_text(starts)
    progress.write(paths, ProgressRecord(attempt=3, update=94, durable_update=durable, began_at=60))
    assert ending.read(paths, ["code=143"]).advanced == advanced
    progress.write(paths, ProgressRecord(attempt=2, update=94, durable_update=durable, began_at=60))
    assert not ending.read(paths, ["code=143"]).advanced


def test_a_checkpoint_of_an_unknown_update_is_one_of_this_attempt(paths: RunPaths) -> None:
    for attempt in (3, 2):
        progress.write(paths, ProgressRecord(attempt=attempt, checkpoint_at=1000.0))
        found = ending.read(paths, ["code=0"])
        assert (found.kept, found.checkpoint, found.advanced) == (attempt == 3, attempt == 3, False)


@pytest.mark.parametrize(
    ("before", "facts", "expected"),
    [
        (2, "scheduler signalled job=COMPLETING time_limit checkpoint kept", True),
        (2, "scheduler signalled job=COMPLETING time_limit checkpoint kept starts=50", False),
        (2, "scheduler job=COMPLETING restarted preempted", False),
        (1, "scheduler signalled job=COMPLETING time_limit checkpoint kept", False),
        (2, "scheduler job=RUNNING asked=USR1 checkpoint kept", True),
        (2, "scheduler job=RUNNING announced asked=TERM code=1 failed checkpoint kept", True),
        (2, "scheduler signalled job=COMPLETING time_limit asked=TERM saved terminated", False),
    ],
)
def test_that_the_attempt_before_was_continued_from_an_earlier_checkpoint_is_read_of_its_end(
    paths: RunPaths, before: int, facts: str, expected: bool
) -> None:
    ended = decide(facts_of(facts))
    assert ended.state == states.REQUEUED or not expected
    paths.starts.write_text("2 1 \n")
    paths.events.write_text(
        f"1.0\t{before}\tbegan\t\n2.0\t{before}\tended\t{ended.state} 143 {ended.why}\n3.0\t3\tbegan\t\n"
    )
    assert ending.read(paths, ["code=143"]).kept_before is expected
    paths.starts.write_text("1 1 \n")  # the third attempt is a resume by hand
    assert not ending.read(paths, ["code=143"]).kept_before


@pytest.mark.parametrize(
    ("noted", "announced"), [("3\tsignal\tUSR1", True), ("2\tsignal\tUSR1", False), ("3\tsignal\tTERM", False)]
)
def test_that_its_time_was_nearly_over_is_read_of_the_signals(paths: RunPaths, noted: str, announced: bool) -> None:
    paths.events.write_text(f"1.0\t3\tbegan\t\n2.0\t{noted}\n")
    assert ending.read(paths, ["code=143"]).announced is announced


@pytest.mark.parametrize("shown", ["", "JobId=7 JobState=RUNNING Restarts=1 "])
def test_a_job_that_slurm_does_not_start_again_is_read_as_such(paths: RunPaths, shown: str) -> None:
    found = ending.read(paths, ["scheduler", "restarts=1", f"shown={shown}"])
    assert (found.job, found.restarted) == ("RUNNING" if shown else "", False)


def test_a_job_that_has_not_been_started_again_before_is_seen_to_be(paths: RunPaths) -> None:
    assert ending.read(paths, ["scheduler", "shown=JobId=7 JobState=RUNNING Restarts=1 "]).restarted


def test_a_total_that_may_be_that_of_an_epoch_is_read_as_such(paths: RunPaths) -> None:
    for may_be in (True, False):
        progress.write(paths, ProgressRecord(attempt=3, update=5, total_updates=5, may_be_of_epoch=may_be))
        assert ending.read(paths, ["code=0"]).may_be_of_epoch is may_be


def test_a_failure_is_one_however_short_its_record_is(paths: RunPaths) -> None:
    paths.failure.write_text("{")
    assert ending.read(paths, ["code=1"]).failed


def test_the_progress_of_an_earlier_attempt_says_nothing_of_this_one(paths: RunPaths) -> None:
    progress.write(paths, ProgressRecord(attempt=2, update=1000, total_updates=1000))
    assert ending.read(paths, ["code=0"]).update is None


def test_what_an_older_attempt_leaves_late_says_nothing_of_this_one(paths: RunPaths) -> None:
    attempts.note_request(paths, 2, StopRequest("USR1", 12.5))
    for path in (paths.saved(2), paths.terminated(2)):
        path.touch()
    found = ending.read(paths, ["code=0"])
    assert (found.asked, found.saved, found.terminated) == ("", False, False)


@pytest.mark.parametrize("damage", ["", "USR1", "USR1 x", "\x1b[2J 1.0", "usr1 1.0"])
def test_a_damaged_request_is_none(paths: RunPaths, damage: str) -> None:
    paths.asked(3).write_text(damage)
    assert attempts.request(paths, 3) is None


def test_damaged_records_never_keep_an_attempt_from_its_end(paths: RunPaths) -> None:
    for path in (paths.job, paths.progress, paths.starts):
        path.write_text("{")
    assert decide(ending.read(paths, ["code=0"])) == Ending(states.COMPLETED)


def test_the_job_script_gets_three_lines_by_the_facts_that_it_gives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in (["code=0"], ["code=1"], ["code=1", "signalled=TERM"]):
        assert ending.main([str(tmp_path), *words]) == 0
        told = capsys.readouterr().out
        assert told == ending.printed(tmp_path, words)
        assert told.count("\n") == 3
    assert ending.printed(tmp_path, ["code=0"]) != ending.printed(tmp_path, ["code=1"])
    monkeypatch.setattr(sys, "argv", ["ending.py", str(tmp_path), "code=1"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(ending.__file__, run_name="__main__")
    assert capsys.readouterr().out == ending.printed(tmp_path, ["code=1"])
