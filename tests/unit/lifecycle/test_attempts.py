"""What is recorded of an attempt before and after it is handed to a back end, which here says what a test wants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.run_folders import made, made_element, recorded
from tests.support.told_back_end import NEW, Told, told_as
from trainjob.backends import containers, folder, mirror, registry
from trainjob.backends.base import Liveness, NotSubmittedError, UnknownOutcomeError
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.lifecycle import resume, start
from trainjob.machines.process import NotStartedError
from trainjob.machines.ssh.failures import SshError
from trainjob.observe.status import status
from trainjob.records.submission import Remote, Submission


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    back_end = told_as(monkeypatch, "detached")
    monkeypatch.setattr(folder, "refuse_foreign_content", lambda *_: None)
    monkeypatch.setattr(containers, "image_digest", lambda *_: "sha256:1")
    return back_end


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return made(tmp_path, "abcd", state=None, native=None)


def hand_over(paths: RunPaths, **changes: Any) -> None:
    before = recorded(paths)
    start.hand_over(paths, before.replace(**changes), before=before)


def test_an_attempt_is_recorded_before_it_begins_and_with_its_job_after(told: Told, paths: RunPaths) -> None:
    hand_over(paths, attempt=2)
    assert [one and (one.attempt, one.native) for one in told.started] == [(2, None)]
    assert (recorded(paths).attempt, recorded(paths).native) == (2, NEW)
    assert recorded(paths).image_digest is None, "its image is on nodes that are not known yet"


@pytest.mark.parametrize(("digest", "kept"), [("sha256:1", "sha256:1"), (None, "sha256:0")])
def test_without_a_scheduler_the_image_is_that_of_now(
    told: Told, paths: RunPaths, monkeypatch: pytest.MonkeyPatch, digest: str | None, kept: str
) -> None:
    told.HAS_SCHEDULER = False
    monkeypatch.setattr(containers, "image_digest", lambda *_: digest)
    hand_over(paths, image_digest="sha256:0")
    assert recorded(paths).image_digest == kept


@pytest.mark.parametrize("error", [NotSubmittedError("full"), NotStartedError("too many files")])
def test_what_certainly_never_began_leaves_the_record_as_it_was(told: Told, paths: RunPaths, error: UserError) -> None:
    recorded(paths).write(paths)
    before = recorded(paths)

    told.fail(error)
    with pytest.raises(NotSubmittedError):
        hand_over(paths, attempt=2)
    assert recorded(paths) == before
    with pytest.raises(NotSubmittedError):
        start.hand_over(paths, before.replace(attempt=3), before=None)
    assert recorded(paths).attempt == 3, "there is nothing to go back to"


def test_what_may_have_begun_is_recorded_as_unknown(told: Told, paths: RunPaths) -> None:
    told.fail(UnknownOutcomeError("lost"))
    with pytest.raises(UnknownOutcomeError):
        hand_over(paths)
    assert (recorded(paths).is_unknown, recorded(paths).native) == (True, None)


@pytest.mark.parametrize(("failures", "ends"), [(1, False), (2, True)])
def test_a_record_is_tried_twice_once_a_job_has_begun(
    told: Told, paths: RunPaths, monkeypatch: pytest.MonkeyPatch, failures: int, ends: bool
) -> None:
    write, left = Submission.write, [failures]

    def full(submission: Submission, where: RunPaths) -> None:
        if submission.native is not None and left[0]:
            left[0] -= 1
            raise OSError(28, "No space left on device")
        write(submission, where)

    monkeypatch.setattr(Submission, "write", full)
    if ends:
        with pytest.raises(NotSubmittedError, match=r"submission\.json can't be written"):
            hand_over(paths)
    else:
        hand_over(paths)
        assert recorded(paths).native == NEW
    assert told.cancelled == ([NEW] if ends else [])


@pytest.mark.parametrize("reached", [True, False])
def test_a_copy_that_was_cut_is_no_lost_job(
    told: Told, paths: RunPaths, monkeypatch: pytest.MonkeyPatch, reached: bool
) -> None:
    def cut(*_: object) -> None:
        raise SshError("x", "the connection was cut", reached=reached)

    monkeypatch.setattr(mirror, "place", cut)
    with pytest.raises(UserError, match="the connection was cut") as refused:
        hand_over(paths, remote=Remote("pod", None, "/runs/abcd"))
    assert isinstance(refused.value, NotSubmittedError) is not reached
    assert ("trainjob resume abcd" in refused.value.cure) is reached
    assert told.started == []


# --- Elements of an array.


def test_each_element_is_recorded_before_and_after(told: Told, paths: RunPaths) -> None:
    whole = recorded(paths).replace(native={"job_id": "7"})
    whole.write(paths)
    for number in (1, 3):
        paths.of_element(number).folder.mkdir(parents=True)
    start.hand_over_elements(paths, {number: whole.replace(native=None, attempt=2) for number in (3, 1)})
    assert [one and (one.attempt, one.native) for one in told.started] == [(2, None)] * 2
    assert recorded(paths.of_element(3)).native == {**NEW, "element": 3}
    assert recorded(paths).native == {"job_id": "7"}


def test_no_element_begins_where_others_may_have_put_something(
    told: Told, paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object, place: Path) -> None:
        raise UserError(f"{place} is open to others", "close it")

    monkeypatch.setattr(folder, "refuse_foreign_content", refuse)
    paths.of_element(1).folder.mkdir(parents=True)
    with pytest.raises(UserError, match=f"{paths.folder} is open to others"):
        start.hand_over_elements(paths, {1: recorded(paths).replace(attempt=2)})
    assert told.started == []


# --- One more attempt.


def test_the_next_attempt_keeps_the_jobs_of_those_before(told: Told, tmp_path: Path) -> None:
    paths = made(
        *(tmp_path, "abcd"),
        state="FAILED",
        native={"job_id": "7"},
        earlier=[{"job_id": "5"}],
        after=["other"],
        cancelled_at="2026-01-01T00:00:00+00:00",
    )
    paths.stop.touch()
    paths.logs.rmdir()
    resume.resume(status(paths))
    now = recorded(paths)
    assert (now.native, list(now.earlier), now.attempt) == (NEW, [{"job_id": "5"}, {"job_id": "7"}], 2)
    assert (list(now.after), now.cancelled_at, now.argv) == ([], None, ["start", "abcd", "job.sh"])
    assert now.resumed_at is not None
    assert not paths.stop.exists(), "it would end the attempt at once"
    assert paths.logs.is_dir()
    assert len(told.started) == 1


@pytest.mark.parametrize(("has_scheduler", "attempt"), [(True, 1), (False, 2)])
def test_a_submission_that_was_interrupted_is_looked_for_where_a_scheduler_may_have_it(
    told: Told, tmp_path: Path, has_scheduler: bool, attempt: int
) -> None:
    told.HAS_SCHEDULER = has_scheduler
    paths = made(tmp_path, "abcd", state="FAILED", native=None)
    resume.resume(status(paths))
    assert (recorded(paths).attempt, list(recorded(paths).earlier)) == (attempt, [])


def test_a_run_that_was_started_by_hand_or_whose_record_is_damaged_is_not_resumed(told: Told, tmp_path: Path) -> None:
    paths = made(tmp_path, "abcd", state="FAILED")
    paths.submission.write_text('{"backend": 1}')
    with pytest.raises(UserError, match=r"can't be resumed: submission\.json"):
        resume.resume(status(paths))
    paths.submission.unlink()
    with pytest.raises(UserError, match="was started by hand"):
        resume.resume(status(paths))
    assert told.started == []


# --- What is asked of a back end.


def test_one_damaged_native_id_does_not_hide_the_others(told: Told) -> None:
    sound, damaged = registry.ask("detached", [NEW, {"broken": 1}])
    assert (sound.liveness, damaged.liveness) == (Liveness.GONE, Liveness.UNKNOWN)
    assert damaged.note == "damaged: submission.json: native is {'broken': 1}"
    (unknown,) = registry.ask("other", [NEW])
    assert unknown.liveness is Liveness.UNKNOWN
    assert "other" in (unknown.note or "")
    assert told.started == []


@pytest.mark.usefixtures("told")
def test_the_schedulers_name_of_a_run_is_shown_as_far_as_it_is_known() -> None:
    assert registry.identify("detached", NEW) == {"job_id": "9"}
    assert [registry.identify(*words) for words in (("detached", None), ("detached", {}), ("other", NEW))] == [{}] * 3
    assert [registry.has_scheduler(name) for name in ("detached", "other")] == [True, True]


def test_a_job_that_a_lost_submission_has_left_is_taken(told: Told, paths: RunPaths) -> None:
    assert registry.adopt(paths, recorded(paths)) is None
    told.found = NEW
    found = registry.adopt(paths, recorded(paths))
    assert found is not None
    assert recorded(paths).native == found.native == NEW


@pytest.mark.parametrize("error", [NotSubmittedError("full"), UnknownOutcomeError("no answer")])
def test_elements_that_certainly_never_began_are_recorded_as_before(
    told: Told, paths: RunPaths, error: UserError, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, state in ((0, "FAILED"), (2, "LOST")):
        made_element(paths, number, state)
    recorded(paths).replace(attempt=4).write(paths.of_element(2))
    before = {number: recorded(paths).replace(attempt=5) for number in (0, 2)}
    told.fail(error)
    monkeypatch.setattr(told, "start_elements", lambda *_: told.starts())
    with pytest.raises(type(error)):
        start.hand_over_elements(paths, before)
    is_as_before = isinstance(error, NotSubmittedError)
    assert paths.of_element(0).submission.exists() is not is_as_before
    assert recorded(paths.of_element(2)).attempt == (4 if is_as_before else 5)
