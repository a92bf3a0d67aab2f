"""A submission: what becomes of a run that is handed over, and that nothing stays of one that never began."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.support.clock import sleeps_skipped
from tests.support.run_folders import made, recorded
from tests.support.small_runs import RENDERED
from tests.support.told_back_end import NEW, Told, told_as
from trainjob.backends import containers, folder, mirror
from trainjob.backends.base import Answer, Liveness, NotSubmittedError, UnknownOutcomeError
from trainjob.backends.folder import FolderError
from trainjob.backends.project import Project, Selection
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.lifecycle import start
from trainjob.lifecycle.lock import locked
from trainjob.lifecycle.start import Handover, refuse_redirects, submit, to_wait_for
from trainjob.observe import index
from trainjob.observe.status import status
from trainjob.records import checkpoints
from trainjob.records.submission import Remote, Submission


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    back_end = told_as(monkeypatch, "detached", "slurm")
    monkeypatch.setattr(folder, "refuse_foreign_content", lambda *_: None)
    monkeypatch.setattr(containers, "image_digest", lambda *_: None)
    return back_end


@pytest.fixture
def handover(tmp_path: Path) -> Handover:
    top = tmp_path / "project"
    (top / "sub").mkdir(parents=True)
    (top / "train.py").write_text("1\n")
    project = Project(top, "sub", in_git=False)
    selection = Selection(("train.py",), (("big", "data"),))
    return Handover(RENDERED, "näh", "c", "slurm", tmp_path / "runs", project, selection)


def test_a_file_that_went_away_since_it_was_chosen_is_named(told: Told, handover: Handover) -> None:
    (handover.project.top / "train.py").unlink()
    with pytest.raises(UserError, match=r"project file .*train\.py can't be read"):
        submit(handover)
    assert (told.started, index.ids()) == ([], [])
    assert list(handover.runs_dir.iterdir()) == []


def test_a_run_is_whole_recorded_and_in_the_index_when_it_begins(told: Told, handover: Handover) -> None:
    paths = submit(handover)
    assert paths.folder.parent == handover.runs_dir
    assert told.folders == [paths.folder]
    assert index.ids() == [paths.id]
    assert (paths.project / "train.py").read_text() == "1\n"
    assert not (paths.folder / ".lock").exists()
    (before,) = told.started
    assert before is not None
    assert (before.native, before.attempt, before.backend, before.cluster) == (None, 1, "slurm", "c")
    now = recorded(paths)
    assert (now.native, now.argv, now.script) == (NEW, ["start", paths.id, "job.sh"], "job.sh")
    assert now.project == {
        "top": str(handover.project.top),
        "commit": None,
        "diff": None,
        "start": "sub",
        "copied": 1,
        "left_out": [["big", "data"]],
    }
    assert (now.remote, list(now.after), now.holds_nodes) == (None, [], False)
    assert datetime.fromisoformat(now.submitted_at).tzinfo is not None
    assert paths.submission.stat().st_mode & 0o777 == 0o644


def test_a_project_that_is_only_recorded_is_not_copied_and_a_private_run_is_not_listed(
    told: Told, handover: Handover, tmp_path: Path
) -> None:
    other = made(tmp_path, "other")
    paths = submit(dataclasses.replace(handover, selection=None, is_listed=False, after=(other,), share="all"))
    assert index.ids() == ["other"]
    assert not paths.project.exists()
    now = recorded(paths)
    assert (now.project["copied"], now.project["left_out"]) == (0, [])
    assert (list(now.after), now.argv) == (["other"], ["start", paths.id, "job.sh", "other"])
    assert paths.folder.stat().st_mode & 0o777 == 0o755
    assert len(told.started) == 1


def test_a_run_on_another_machine_has_its_folder_there(
    told: Told, handover: Handover, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed: list[object] = []
    monkeypatch.setattr(mirror, "place", lambda paths, remote: placed.append((paths.id, remote)))
    monkeypatch.setattr(start, "place_of", lambda *_: (None, ""))
    paths = submit(dataclasses.replace(handover, remote=Remote("pod", "ml", "/there")))
    assert recorded(paths).remote == Remote("pod", "ml", f"/there/{paths.id}")
    assert placed == [(paths.id, recorded(paths).remote)]
    assert len(told.started) == 1


def test_the_same_job_is_refused_for_a_minute_unless_it_is_asked_for_again(told: Told, handover: Handover) -> None:
    first = submit(handover)
    with pytest.raises(UserError, match=f"the same job was submitted . s ago, as {first.id}"):
        submit(handover)
    assert index.ids() == [first.id]
    again = submit(handover, again=True)
    assert recorded(again).digest == recorded(first).digest
    (handover.project.top / "train.py").write_text("other\n")
    assert recorded(submit(handover)).digest != recorded(first).digest
    assert len(told.started) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"cluster": "d"},
        {"rendered": RENDERED._replace(files={**RENDERED.files, "x": RENDERED.files["job.sh"]})},
        {"selection": None},
    ],
)
def test_another_job_is_not_the_same(told: Told, handover: Handover, change: dict[str, Any]) -> None:
    submit(handover)
    submit(dataclasses.replace(handover, **change))
    assert len(told.started) == 2


@pytest.mark.parametrize("error", [NotSubmittedError("Invalid partition"), index.IndexUnwritableError("full")])
def test_of_what_never_began_nothing_stays(
    told: Told, handover: Handover, error: UserError, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[object] = []

    def gone(submission: Submission) -> None:
        removed.append(submission.native)
        raise UserError("is not reached")

    monkeypatch.setattr(mirror, "remove", gone)

    told.fail(error)
    with pytest.raises(type(error)):
        submit(handover)
    assert (index.ids(), os.listdir(handover.runs_dir), removed) == ([], [], [None])


def test_of_what_may_have_begun_everything_stays(told: Told, handover: Handover) -> None:
    told.fail(UnknownOutcomeError("lost"))
    with pytest.raises(UnknownOutcomeError):
        submit(handover)
    (run_id,) = index.ids()
    assert recorded(RunPaths(handover.runs_dir / run_id)).is_unknown


def test_a_folder_that_can_not_be_made_is_in_no_index(told: Told, handover: Handover) -> None:
    handover.runs_dir.write_text("")
    with pytest.raises(FolderError):
        submit(handover)
    assert (index.ids(), told.started) == ([], [])


def test_a_run_that_was_resumed_before_it_was_handed_over_is_not_started_twice(
    told: Told, handover: Handover, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = folder.create

    def resumed(target: Path, *words: Any) -> RunPaths:
        paths = create(target, *words)
        recorded(paths).replace(native={"job_id": "5"}).write(paths)
        return paths

    monkeypatch.setattr(folder, "create", resumed)
    paths = submit(handover)
    assert (told.started, recorded(paths).native) == ([], {"job_id": "5"})


def test_a_lock_that_can_not_be_had_is_a_submission_that_never_began(
    told: Told, handover: Handover, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = folder.create

    def with_lock(target: Path, *words: Any) -> RunPaths:
        paths = create(target, *words)
        (paths.folder / ".lock").mkdir()
        (paths.folder / ".lock/x").touch()
        return paths

    monkeypatch.setattr(folder, "create", with_lock)
    waited = sleeps_skipped(monkeypatch)
    with pytest.raises(NotSubmittedError, match="is locked"):
        submit(handover)
    assert (told.started, os.listdir(handover.runs_dir), index.ids()) == ([], [], [])
    assert 59.5 < sum(waited) < 60.5, "a resume may hold it for as long as it takes"


# --- The same job, of unknown outcome.


@pytest.fixture
def lost(told: Told, handover: Handover) -> RunPaths:
    told.fail(UnknownOutcomeError("lost"))
    with pytest.raises(UnknownOutcomeError):
        submit(handover)
    told.starts = lambda: NEW
    (run_id,) = index.ids()
    return RunPaths(handover.runs_dir / run_id)


def test_a_job_that_a_lost_submission_left_is_not_submitted_again(
    told: Told, handover: Handover, lost: RunPaths
) -> None:
    told.found = {"job_id": "3"}
    with pytest.raises(UserError, match=f"the same job was submitted as run {lost.id}, although"):
        submit(handover)
    assert recorded(lost).native == {"job_id": "3"}


def test_a_lost_submission_that_left_nothing_is_in_nobodys_way(told: Told, handover: Handover, lost: RunPaths) -> None:
    paths = submit(handover)
    assert recorded(paths).native == NEW
    assert recorded(lost).native is None


def test_a_submission_that_may_be_under_way_is_in_the_way(told: Told, handover: Handover, lost: RunPaths) -> None:
    recorded(lost).replace(is_unknown=False).write(lost)
    with pytest.raises(UserError, match="the same job was submitted"):
        submit(handover)


def test_a_scheduler_that_does_not_answer_lets_no_second_one_through(
    told: Told, handover: Handover, lost: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: Any) -> None:
        raise UserError("the controller is down")

    monkeypatch.setattr(told, "look_for", silent)
    with pytest.raises(
        UserError, match=f"run {lost.id} is the same job, and may have been submitted: the controller"
    ) as refused:
        submit(handover)
    assert refused.value.problem.code == "outcome-unknown"


def test_an_earlier_try_that_is_in_the_way_is_seen_behind_those_that_are_not(
    told: Told, handover: Handover, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kind of run that is passed over comes before the one that counts."""
    first = submit(handover)
    digest = recorded(first).digest
    at = recorded(first).submitted_at
    made(tmp_path, "zz-resumed", state="RUNNING", submitted_at=at, digest=digest, attempt=2)
    made(tmp_path, "zz-other", state="RUNNING", submitted_at=at, digest="other")
    made(tmp_path, "zz-failed", state="FAILED", submitted_at=at, digest=digest)
    made(
        tmp_path,
        "zz-lost",
        native=None,
        backend=recorded(first).backend,
        is_unknown=True,
        submitted_at=at,
        digest=digest,
    )
    made(tmp_path, "zz-damaged").submission.write_text("{")
    for runs in (index.ids(), index.ids()[::-1]):
        order = [next(paths for paths in index.every_run() if paths.id == name) for name in runs]
        monkeypatch.setattr(index, "recent", lambda _, order=order: iter(order))
        with pytest.raises(UserError, match=f"as {first.id}"):
            start.refuse_the_same(digest)
    assert len(told.started) == 1


# --- Redirects.


def test_what_only_a_rehearsal_may_set_is_refused_and_named() -> None:
    refuse_redirects({"PATH": "/bin", "TRAINJOB_RUN_DIR": "/r"})
    with pytest.raises(UserError, match="TRAINJOB_DEVICE=cpu: only a rehearsal redirects a job") as refused:
        refuse_redirects({"TRAINJOB_DEVICE": "cpu"})
    assert refused.value.cure.startswith("Run: unset TRAINJOB_DEVICE. ")
    with pytest.raises(UserError) as refused:
        refuse_redirects({"TRAINJOB_PYTHON": "/x"})
    assert refused.value.cure == "Run: unset TRAINJOB_PYTHON"


# --- Waiting for other runs.


def test_a_run_waits_for_those_that_are_not_complete(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told.answer = Answer(Liveness.ALIVE)
    done, at_work = (
        made(tmp_path, name, backend="slurm", native={"job_id": "1"}, state=state)
        for name, state in (("done", "COMPLETED"), ("work", "RUNNING"))
    )
    assert [paths.id for paths in to_wait_for([done, at_work], "c", "slurm", None)] == ["work"]
    told_as(monkeypatch, "local")
    for backend, remote in (("slurm", Remote("h", None, "/r")), ("local", None)):
        with pytest.raises(UserError, match=r"--after work: it runs on cluster local, and the scheduler of c does not"):
            to_wait_for([at_work], "c", backend, remote)
    at_work.submission.write_text(json.dumps({**json.loads(at_work.submission.read_text()), "native": None}))
    with pytest.raises(UserError, match=r"--after work: it is \w+, and a run that waits for it would never start"):
        to_wait_for([at_work], "c", "slurm", None)


CASES: list[tuple[Callable[[RunPaths], object], str]] = [
    (lambda paths: paths.submission.unlink(), "--after abcd: it was submitted by hand"),
    (lambda paths: paths.state.write_text("FAILED\n"), "--after abcd: it is FAILED, and a run that waits for it would"),
]


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize(("change", "said"), CASES)
def test_a_run_that_can_not_become_complete_is_not_waited_for(
    tmp_path: Path, change: Callable[[RunPaths], object], said: str
) -> None:
    paths = made(tmp_path, "abcd", backend="slurm", native={"job_id": "1"})
    change(paths)
    with pytest.raises(UserError, match=said):
        to_wait_for([paths], "c", "slurm", None)


def test_without_a_scheduler_nothing_waits(told: Told, tmp_path: Path) -> None:
    told.HAS_SCHEDULER = False
    with pytest.raises(UserError, match="--after needs a scheduler that holds the run back, and cluster c has none"):
        to_wait_for([made(tmp_path, "abcd")], "c", "detached", None)


def test_a_lock_is_held_while_a_run_is_handed_over(told: Told, handover: Handover) -> None:
    refused: list[str] = []

    def starts() -> Any:
        (run_id,) = index.ids()
        paths = RunPaths(handover.runs_dir / run_id)
        with pytest.raises(UserError) as error, locked(paths, "trainjob resume"):
            pass
        refused.append(error.value.text)
        return NEW

    told.starts = starts
    submit(handover)
    assert "is locked by trainjob submit" in refused[0]


def test_the_scheduler_is_not_asked_about_a_job_whose_id_is_known(
    told: Told, handover: Handover, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(handover)
    monkeypatch.setattr(told, "look_for", Mock(side_effect=UserError("the controller is down")))
    with pytest.raises(UserError, match=r"the same job was submitted \d+ s ago"):
        submit(handover)


# --- Elsewhere.


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have copies of run directories made here, and no job rendered into them."""
    monkeypatch.setattr(mirror, "copy", lambda paths, _, target: shutil.copytree(paths.folder, target))
    monkeypatch.setattr(folder, "write_again", lambda *_: None)
    monkeypatch.setattr(checkpoints, "passed_over", lambda _: ["update-3 is damaged"])


@pytest.mark.usefixtures("told", "copied")
def test_a_run_that_goes_on_elsewhere_begins_there_as_one_that_nobody_has_cancelled(
    handover: Handover, tmp_path: Path
) -> None:
    paths = made(tmp_path / "ended", "abcd", state="CANCELLED", native={"job_id": "7"}, is_cancelled=True)
    said: list[str] = []
    moved = recorded(start.go_on(status(paths), handover, said.append))
    assert (moved.is_cancelled, moved.is_unknown, moved.continues) == (False, False, "abcd")
    assert said == ["update-3 is damaged"]


@pytest.mark.usefixtures("copied")
def test_a_run_that_could_not_go_on_elsewhere_is_as_it_was(told: Told, handover: Handover, tmp_path: Path) -> None:
    paths = made(tmp_path / "ended", "abcd", state="FAILED", native={"job_id": "7"})
    before = paths.submission.read_text()
    told.fail(NotSubmittedError("sbatch: no", "wait"))
    with pytest.raises(NotSubmittedError):
        start.go_on(status(paths), handover, print)
    assert paths.submission.read_text() == before
    paths.submission.unlink()
    with pytest.raises(UserError, match="run abcd was started by hand"):
        start.go_on(status(paths), handover, print)
