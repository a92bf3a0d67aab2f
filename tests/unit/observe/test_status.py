"""States: files first, the back end second, and never RUNNING without a process."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import Clock
from tests.support.run_folders import ALIVE, GONE, made, only_one_is_running, recorded
from trainjob.backends import detached
from trainjob.backends.base import Answer, Liveness
from trainjob.backends.slurm import backend as slurm
from trainjob.contract import states
from trainjob.contract.errors import UserError
from trainjob.lifecycle import cancel
from trainjob.lifecycle.resume import refuse_unless_ended
from trainjob.observe import index
from trainjob.observe.asking import Sparing
from trainjob.observe.seen import look
from trainjob.observe.status import Snapshot, poll, status, statuses
from trainjob.records import roles
from trainjob.records import submission as submissions
from trainjob.records.roles import RoleRecord
from trainjob.records.submission import Native

ELSEWHERE = {"pid": 1, "started": 1, "host": "another-host"}


def write(path: Path, text: str) -> None:
    path.write_text(text)


@pytest.fixture(autouse=True)
def _one_script_is_running(monkeypatch: pytest.MonkeyPatch) -> None:
    only_one_is_running(monkeypatch)


@pytest.mark.parametrize("state", sorted(states.ENDED))
def test_an_ended_run_is_what_its_file_says(tmp_path: Path, state: str) -> None:
    assert status(made(tmp_path, "abcd", state=state)).state == state


@pytest.mark.parametrize(
    ("state", "native", "expected", "note"),
    [
        ("RUNNING", "ALIVE", "RUNNING", None),
        (None, "ALIVE", "PENDING", None),
        ("RUNNING", "GONE", "LOST", "recorded no end"),
        (None, "GONE", "LOST", "recorded no end"),
        ("RUNNING", None, "LOST", "its submission was interrupted"),
        ("RUNNING", "ELSEWHERE", "RUNNING", "it was started on host another-host"),
    ],
)
def test_an_open_run_is_what_its_process_says(
    tmp_path: Path, state: str | None, native: str | None, expected: str, note: str | None
) -> None:
    known = {"ALIVE": ALIVE, "GONE": GONE, "ELSEWHERE": ELSEWHERE}
    found = status(made(tmp_path, "abcd", state=state, native=known[native] if native else None))
    assert found.state == expected
    assert (found.note is None) if note is None else (note in (found.note or ""))


def test_another_process_with_the_same_id_is_not_the_run(tmp_path: Path) -> None:
    reused = {**ALIVE, "started": ALIVE["started"] - 1}
    assert status(made(tmp_path, "abcd", state="RUNNING", native=reused)).state == "LOST"


def test_a_killed_run_that_was_being_cancelled_is_cancelled(tmp_path: Path) -> None:
    paths = made(tmp_path, "abcd", state="RUNNING", cancelled_at="2026-01-01T00:00:01+00:00")
    assert status(paths).state == "CANCELLED"


def test_a_run_whose_job_a_cancel_ended_before_its_submission_knew_it_is_cancelled(tmp_path: Path) -> None:
    paths = made(tmp_path, "abcd", state=None, native=None, cancelled_at="2026-01-01T00:00:01+00:00")
    assert status(paths).state == "CANCELLED"


def test_a_run_that_was_killed_after_it_was_asked_to_end_is_cancelled(tmp_path: Path) -> None:
    paths = made(tmp_path, "abcd", state="RUNNING")
    paths.events.write_text("1.0\t1\tbegan\tn1\n2.0\t1\tsignal\tUSR1\n")
    assert status(paths).state == "LOST"
    paths.events.write_text("1.0\t1\tbegan\tn1\n2.0\t1\tsignal\tTERM\n")
    assert status(paths).state == "CANCELLED"
    paths.events.write_text("1.0\t7\tsignal\tTERM\n")  # another attempt's
    assert status(paths).state == "LOST"


@pytest.mark.parametrize(("state", "is_said"), [("RUNNING", True), ("COMPLETED", True), ("CANCELLED", False)])
def test_that_a_reservation_is_idle_is_said_until_something_else_ends_it(
    tmp_path: Path, state: str, is_said: bool
) -> None:
    paths = made(tmp_path, "abcd", state=state, native=ALIVE)
    paths.events.write_text("1.0\t1\tbegan\tn1\n2.0\t1\tidle\tidle: its nodes are released at 12:00:00\n")
    assert ("are released" in str(status(paths).note)) is is_said


def test_a_run_whose_directory_is_removed_is_lost_and_waited_for_no_longer(tmp_path: Path) -> None:
    paths = made(tmp_path, "abcd", state="RUNNING", native=ALIVE)
    shutil.rmtree(paths.folder)
    now = poll(paths, lambda now: now.state not in states.ACTIVE, lambda _s: pytest.fail("it is waited for"))
    assert (now.state, now.note) == ("LOST", f"its run directory {paths.folder} is gone")


def test_a_run_that_waits_for_its_next_attempt_is_pending(tmp_path: Path) -> None:
    assert status(made(tmp_path, "abcd", state="FAILED", native=ALIVE, attempt=2)).state == "PENDING"


def test_a_run_that_ends_between_two_looks_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = made(tmp_path, "abcd", state="RUNNING")

    def ends(natives: Sequence[Any]) -> list[Any]:
        paths.state.write_text("COMPLETED\n")
        return [Answer(Liveness.GONE) for _ in natives]

    monkeypatch.setattr(detached, "ask", ends)
    assert status(paths).state == "COMPLETED"


def test_a_thousand_runs_ask_the_back_end_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1000):
        made(tmp_path, f"{number:04d}-job", state="RUNNING" if number % 2 else "COMPLETED")
    asked: list[int] = []
    ours = detached.ask
    monkeypatch.setattr(detached, "ask", lambda natives: asked.append(len(natives)) or ours(natives))
    found = statuses(index.every_run())
    assert (len(found), asked) == (1000, [500])
    assert [one.state for one in found[:2]] == ["COMPLETED", "LOST"]


@pytest.mark.parametrize("broken", ["", "{", "[]", '"text"', "{}", "null"])
def test_a_broken_file_of_one_run_hides_no_other(tmp_path: Path, broken: str) -> None:
    paths = made(tmp_path, "abcd", state="RUNNING")
    for path in (paths.submission, paths.job, paths.progress):
        path.write_text(broken)
    made(tmp_path, "efgh")
    assert [one.state for one in statuses(index.every_run())] == ["RUNNING", "COMPLETED"]


def test_fields_of_a_newer_trainjob_are_passed_over(tmp_path: Path) -> None:
    assert status(made(tmp_path, "abcd", of_the_future=True)).cluster == "local"


def test_a_failed_run_without_a_blamed_rank_shows_what_its_script_printed(tmp_path: Path) -> None:
    paths = made(tmp_path, "abcd", state="FAILED")
    paths.scheduler_log.write_text("--- attempt 1 ---\nold\n--- attempt 2 ---\ntrainjob: port 29400 is in use\n")
    assert status(paths).script_tail == ["trainjob: port 29400 is in use"]


@pytest.mark.parametrize(
    ("state", "attempt", "shown"), [("FAILED", 1, "ENDED"), ("RUNNING", 1, "READY"), ("RUNNING", 0, "ENDED")]
)
def test_no_server_outlives_its_attempt(tmp_path: Path, state: str, attempt: int, shown: str) -> None:
    """What supervised it may have been killed, and has recorded no end."""
    paths = made(tmp_path, "abcd", state=state, native=ALIVE)
    paths.of_role("server").folder.mkdir(parents=True)
    roles.write(paths.of_role("server"), RoleRecord(attempt, roles.READY, "n1:20000", 1, 0.0))
    assert status(paths).roles["server"].state == shown


def test_status_is_plain_json(tmp_path: Path) -> None:
    shown = json.loads(json.dumps(status(made(tmp_path, "abcd")).as_json()))
    assert (shown["id"], shown["state"], shown["failure"], shown["script_tail"]) == ("abcd", "COMPLETED", None, [])


def test_polling_ends_with_the_first_status_that_is_wanted(tmp_path: Path) -> None:
    paths = made(tmp_path, "abcd", state="RUNNING", native=ALIVE)
    looks: list[Snapshot] = []
    ended = poll(
        paths,
        lambda now: looks.append(now) or now.state == "FAILED",
        lambda _s: write(paths.state, "FAILED\n"),
    )
    assert ([look.state for look in looks], ended.state) == (["RUNNING", "FAILED"], "FAILED")


def test_whoever_waits_for_a_requeued_run_has_slurm_start_it_soon_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = {"job_id": "7", "folder": str(tmp_path / "abcd"), "host": None, "user": None}
    paths = made(tmp_path, "abcd", state="REQUEUED", native=native, backend="slurm")
    note = "waits for its start time (after a requeue Slurm waits two minutes) (BeginTime)"
    monkeypatch.setattr(slurm, "ask", lambda natives: [Answer(Liveness.ALIVE, states.PENDING, note)] * len(natives))
    called: list[Sequence[str]] = []
    monkeypatch.setattr(
        "trainjob.backends.slurm.backend.commands.call", lambda _machine, words, **_: called.append(words)
    )
    looks = iter(range(4))
    poll(paths, lambda _now: next(looks) == 3, lambda _s: None)
    assert called == [["scontrol", "update", "JobId=7", "StartTime=now+5"]]


def test_a_scheduler_is_asked_less_and_less_while_the_files_of_a_run_stay_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Answer(Liveness.ALIVE, states.PENDING, "waits")
    paths = made(tmp_path, "abcd", state=None, **under_slurm(monkeypatch, waits))
    looks, asked = 0, list[int]()
    says = slurm.ask
    monkeypatch.setattr(slurm, "ask", lambda natives: asked.append(looks) or says(natives))

    def look(now: Snapshot) -> bool:
        nonlocal looks
        looks += 1
        if looks == 50:
            # It begins, and its scheduler's last answer is of no more use.
            assert (now.state, now.note) == ("PENDING", "waits")
            write(paths.attempt, "1\n")
            write(paths.state, "RUNNING\n")
            monkeypatch.setattr(slurm, "ask", lambda natives: asked.append(looks) or [RUNS for _ in natives])
        return looks == 54

    assert poll(paths, look, lambda _s: None).state == "RUNNING"
    assert asked == [0, 1, 3, 7, 15, 25, 35, 45, 50, 51, 53]


def test_a_scheduler_that_does_not_answer_is_asked_less_often_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = Answer(Liveness.UNKNOWN, note="Slurm does not answer")
    runs = [made(tmp_path, name, state=None, **under_slurm(monkeypatch, silent)) for name in ("abcd", "efgh")]
    looks, asked = 0, list[int]()
    says = slurm.ask
    monkeypatch.setattr(slurm, "ask", lambda natives: asked.append(looks) or says(natives))
    asking = Sparing()
    while looks < 150:
        assert [now.is_stale for now in statuses(runs, asking)] == [True, True]
        looks += 1
    assert asked == [0, 1, 3, 7, 15, 31, 63, 103, 143]


def test_a_slow_scheduler_is_asked_less_often_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = made(tmp_path, "abcd", state=None, **under_slurm(monkeypatch, Answer(Liveness.ALIVE, states.PENDING)))
    clock, looks, asked = Clock(), 0, list[int]()
    says = slurm.ask

    def takes_long(natives: Sequence[Native]) -> list[Answer]:
        asked.append(looks)
        clock.now += 6.0
        return says(natives)

    monkeypatch.setattr(slurm, "ask", takes_long)
    monkeypatch.setattr("trainjob.observe.asking.clock", clock)
    asking = Sparing()
    while looks < 70:
        statuses([paths], asking)
        looks += 1
    assert asked == [0, 1, 3, 7, 15, 31, 63]


def test_a_submission_that_was_interrupted_is_looked_for_less_and_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = made(tmp_path, "abcd", state=None, native=None, backend="slurm")
    looks, asked = 0, list[int]()
    monkeypatch.setattr("trainjob.backends.registry.adopt", lambda *_: asked.append(looks))
    asking = Sparing()
    while looks < 20:
        statuses([paths], asking)
        looks += 1
    assert asked == [0, 1, 3, 7, 15]


def test_an_older_attempt_may_complete_a_run_whose_next_submission_was_interrupted(tmp_path: Path) -> None:
    paths = made(tmp_path, "abcd", state="COMPLETED", native=None, backend="slurm")
    submission = submissions.load(paths)
    assert submission is not None
    write(paths.attempt, "1\n")
    submission.replace(attempt=2).write(paths)
    seen = look(paths)
    assert (seen.is_open, seen.state) == (False, "COMPLETED")
    write(paths.state, "FAILED\n")
    assert (look(paths).is_open, look(paths).state) == (True, "PENDING")


RUNS = Answer(Liveness.ALIVE)


@pytest.mark.parametrize("state", sorted(states.RESUMABLE - {"LOST"}))
def test_a_run_that_ended_early_may_be_resumed_and_a_complete_one_not(tmp_path: Path, state: str) -> None:
    refuse_unless_ended(status(made(tmp_path, "abcd", state=state)))
    with pytest.raises(UserError, match="run efgh is COMPLETED, so there is nothing left to resume"):
        refuse_unless_ended(status(made(tmp_path, "efgh", state="COMPLETED")))


def test_a_run_on_another_host_is_cancelled_there(tmp_path: Path) -> None:
    paths = made(tmp_path, "abcd", state="RUNNING", native=ELSEWHERE)
    with pytest.raises(UserError, match="was started on host another-host, which is not this machine"):
        cancel.cancel(paths, grace_s=0)


@pytest.mark.parametrize("backend", ["local", "poprun"])
def test_run_directories_of_earlier_versions_are_read(tmp_path: Path, backend: str) -> None:
    where = {} if backend == "local" else {"ssh": None, "user": None}
    made(tmp_path, "abcd", state="RUNNING", native={**ALIVE, **where}, backend=backend)
    made(tmp_path, "efgh", state="RUNNING", native={**GONE, **where}, backend=backend)
    assert [one.state for one in statuses(index.every_run())] == ["RUNNING", "LOST"]


def under_slurm(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> dict[str, Any]:
    """Have Slurm give this answer to every question; return what submission.json says of a run that it has."""
    monkeypatch.setattr(slurm, "ask", lambda natives: [answer for _ in natives])
    return {"backend": "slurm", "native": {"job_id": "7", "folder": "/runs/x", "host": None, "user": None}}


UNREACHABLE = Answer(Liveness.UNKNOWN, note="Slurm's controller does not answer")


@pytest.mark.parametrize("state", ["REQUEUED", None])
def test_a_run_cancelled_while_it_waited_is_cancelled_without_asking_slurm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str | None
) -> None:
    submitted = under_slurm(monkeypatch, UNREACHABLE)
    cancelled = {**submitted, "cancelled_at": "2026-01-01T00:00:01+00:00"}
    assert status(made(tmp_path, "abcd", state=state, **cancelled)).state == (state or "PENDING")
    found = status(made(tmp_path, "efgh", state=state, **cancelled, is_cancelled=True))
    assert (found.state, found.is_stale) == ("CANCELLED", False)
    assert "waited to run" in (found.note or "")


def test_a_run_that_slurm_still_has_is_not_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted = under_slurm(monkeypatch, Answer(Liveness.ALIVE, states.PENDING))
    assert status(made(tmp_path, "abcd", state="REQUEUED", **submitted, is_cancelled=True)).state == "REQUEUED"


def test_a_run_that_was_cancelled_while_it_waited_and_is_resumed_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted = under_slurm(monkeypatch, Answer(Liveness.GONE, states.CANCELLED, "cancelled in Slurm"))
    paths = made(tmp_path, "abcd", state=None, **submitted, is_cancelled=True)
    assert status(paths).state == "CANCELLED"
    under_slurm(monkeypatch, Answer(Liveness.ALIVE, states.RUNNING))
    recorded(paths).replace(is_cancelled=False, resumed_at="2026-01-01T00:00:01+00:00").write(paths)
    paths.attempt.write_text("1\n")
    paths.state.write_text("RUNNING\n")
    assert status(paths).state == "RUNNING"


def test_a_run_that_was_cancelled_before_it_began_has_had_no_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted = under_slurm(monkeypatch, Answer(Liveness.GONE))
    at = "2026-01-01T00:00:01+00:00"
    waited = status(made(tmp_path, "abcd", state=None, **submitted, cancelled_at=at))
    ran = status(made(tmp_path, "efgh", state="RUNNING", **submitted, cancelled_at=at))
    assert (waited.state, waited.note) == ("CANCELLED", "cancelled while it waited to run")
    assert (ran.state, ran.note) == ("CANCELLED", "its processes were killed when it was cancelled")


def test_a_run_under_slurm_shows_what_slurm_calls_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"job_id": "7", "nodes": "n1", "elapsed": "1:00", "time_limit": "10:00", "time_left": "9:00"}
    submitted = under_slurm(monkeypatch, Answer(Liveness.ALIVE, scheduler=facts))
    assert status(made(tmp_path, "abcd", state="RUNNING", **submitted)).scheduler == facts
    assert status(made(tmp_path, "efgh", state="COMPLETED", **submitted)).scheduler == {"job_id": "7"}


def test_a_back_end_of_another_version_hides_no_run(tmp_path: Path) -> None:
    made(tmp_path, "abcd", state="RUNNING", backend="of-the-future")
    made(tmp_path, "efgh")
    one, other = statuses(index.every_run())
    assert (one.state, other.state) == ("RUNNING", "COMPLETED")
    assert "back end of-the-future" in (one.note or "")


def test_nodes_that_later_attempts_avoid_are_shown_with_the_reason(tmp_path: Path) -> None:
    run = made(tmp_path, "abcd", state="COMPLETED")
    write(run.excluded_nodes, "node2\t1\trank 1 lost its GPU\ntorn li")
    assert status(run).excluded_nodes == [{"node": "node2", "attempt": "1", "why": "rank 1 lost its GPU"}]
