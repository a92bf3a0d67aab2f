"""Which runs can go on, from which checkpoints, and as what request."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tests.support.checkpoint_folders import saved
from tests.support.records import record
from tests.support.run_folders import made, made_element, recorded
from tests.support.runs_at_work import settings
from tests.support.told_back_end import NEW, Told, told_as
from trainjob.backends import containers, folder, mirror
from trainjob.backends.base import Answer, Liveness
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.lifecycle import resume
from trainjob.observe.status import Snapshot, status
from trainjob.records import job as jobs
from trainjob.records.job import ClusterRecord, RequestRecord


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    back_end = told_as(monkeypatch, "detached")
    monkeypatch.setattr(folder, "refuse_foreign_content", lambda *_: None)
    monkeypatch.setattr(containers, "image_digest", lambda *_: None)
    return back_end


def now(tmp_path: Path, state: str = "FAILED", *elements: str, **changes: Any) -> Snapshot:
    """Return the status of a run in `state`, an array of elements in theirs if some are given."""
    name = changes.pop("name", "abcd")
    paths = made(tmp_path, name, state=state, native={"job_id": "7"})
    parts = [status(made_element(paths, number, of_element)) for number, of_element in enumerate(elements)]
    return dataclasses.replace(status(paths), state=state, elements=parts, **changes)


# --- Which.


@pytest.mark.parametrize(
    ("state", "elements", "completed", "said"),
    [
        ("FAILED", (), False, None),
        ("LOST", (), False, None),
        ("COMPLETED", (), False, "is COMPLETED, so there is nothing left to resume"),
        ("COMPLETED", (), True, None),
        ("RUNNING", (), True, "is RUNNING: cancel it first"),
        ("RUNNING", ("RUNNING", "FAILED"), False, None),
        ("RUNNING", ("RUNNING", "COMPLETED"), False, "is RUNNING"),
        ("RUNNING", ("RUNNING", "COMPLETED"), True, None),
        ("COMPLETED", ("COMPLETED",), False, "is COMPLETED, so there is nothing left"),
    ],
)
@pytest.mark.usefixtures("told")
def test_what_has_ended_early_can_go_on(
    tmp_path: Path, state: str, elements: tuple[str, ...], completed: bool, said: str | None
) -> None:
    seen = now(tmp_path, state)
    of_elements = [dataclasses.replace(seen, state=one, elements=[]) for one in elements]
    seen = dataclasses.replace(seen, state=state, elements=of_elements)
    if said is None:
        resume.refuse_unless_ended(seen, completed=completed)
        return
    with pytest.raises(UserError, match=f"run abcd {said}"):
        resume.refuse_unless_ended(seen, completed=completed)


@pytest.mark.usefixtures("told")
def test_a_run_that_is_completed_goes_on_only_if_that_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is COMPLETED, so there is nothing left to resume"):
        resume.refuse_unless_ended(now(tmp_path, "COMPLETED"))


@pytest.mark.usefixtures("told")
def test_a_copy_is_not_resumed(tmp_path: Path) -> None:
    seen = now(tmp_path)
    assert seen.submission is not None
    copy = dataclasses.replace(seen, submission=seen.submission.replace(copy_of="/r/abcd"))
    with pytest.raises(UserError, match=r"is a copy of /r/abcd\. Resume the original"):
        resume.refuse_unless_ended(copy)


@pytest.mark.usefixtures("told")
def test_the_checkpoints_of_all_parts_are_looked_at_and_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aside: list[str] = []
    monkeypatch.setattr(mirror, "set_checkpoints_aside", lambda paths, _: aside.append(paths.id))
    seen = now(tmp_path, "FAILED", "FAILED", "COMPLETED")
    for part in seen.elements:
        saved(part.paths, 100)
        (saved(part.paths, 200) / "model.safetensors").unlink()
    lines = resume.passed_over(seen)
    assert [f"tasks/{number}/" in line for number, line in enumerate(lines)] == [True, True]
    resume.start_over(seen)
    assert aside == ["abcd:0", "abcd:1"]
    assert resume.passed_over(seen) == []
    assert not seen.elements[1].paths.checkpoint(100).exists()


# --- Started.


def started(told: Told) -> list[str | None]:
    return [None if one is None else str((one.native or {}).get("element")) for one in told.started]


@pytest.mark.parametrize(("completed", "numbers"), [(False, [0]), (True, [0, 1])])
def test_the_elements_of_an_array_that_ended_early_begin_again(
    told: Told, tmp_path: Path, completed: bool, numbers: list[int]
) -> None:
    told.answer = Answer(Liveness.ALIVE)
    seen = now(tmp_path, "FAILED", "FAILED", "COMPLETED", "RUNNING")
    seen.elements[0].paths.stop.touch()
    resume.resume(seen, completed=completed)
    again = [number for number in range(3) if seen.paths.of_element(number).submission.exists()]
    assert again == numbers
    assert len(told.started) == len(numbers)
    assert not seen.elements[0].paths.stop.exists()


def test_one_element_begins_again_by_itself(told: Told, tmp_path: Path) -> None:
    seen = now(tmp_path, "FAILED", "FAILED", "FAILED")
    resume.resume(seen.elements[1])
    assert not seen.paths.of_element(0).submission.exists()
    found = recorded(seen.paths.of_element(1))
    assert (found.native, found.attempt) == ({**NEW, "element": 1}, 2)
    assert len(told.started) == 1


def test_an_array_that_was_never_submitted_is_submitted_whole(told: Told, tmp_path: Path) -> None:
    seen = now(tmp_path, "FAILED", "FAILED")
    assert seen.submission is not None
    never = dataclasses.replace(seen, submission=seen.submission.replace(native=None))
    resume.resume(never)
    assert not seen.paths.of_element(0).submission.exists()
    assert len(told.started) == 1


def test_what_is_in_the_place_of_a_folder_is_named(told: Told, tmp_path: Path) -> None:
    seen = now(tmp_path)
    seen.paths.checkpoints.write_text("")
    with pytest.raises(UserError, match=r"checkpoints can't be created \(File exists\). Remove what is in its place"):
        resume.resume(seen)
    assert told.started == []


# --- With another number of instances.


def trained(tmp_path: Path, job: dict[str, Any], **changes: Any) -> RunPaths:
    paths = RunPaths(tmp_path / "abcd")
    paths.folder.mkdir()
    train = settings(instances=4, micro_batch=4, accumulation=3, **changes)
    request = RequestRecord(ClusterRecord("local", {"kind": "local"}, "catalog local"), job, {"seed": "flag --seed"})
    paths.job.write_text(record(4, train=train, request=request).to_json())
    return paths


def test_another_number_of_instances_keeps_the_global_batch(tmp_path: Path) -> None:
    job = {"instances": 4, "accumulation": 3, "micro_batch": 4, "seed": 7, "hosts": 1, "replicas": 4}
    request = resume.with_instances(trained(tmp_path, job), 2)
    assert request.plan.batch is not None
    assert (request.plan.batch.global_batch, request.plan.topology.instances) == (48, 2)
    assert request.plan.topology.replicas == 2
    assert request.job.seed == 7
    assert request.origins == {"seed": "flag --seed", "instances": "flag --instances"}
    assert (request.cluster_origin, request.job.name) == ("catalog local", "test")


def test_hosts_that_can_not_share_the_instances_are_chosen_anew(tmp_path: Path) -> None:
    request = resume.with_instances(trained(tmp_path, {"instances": 4, "hosts": 2, "least_hosts": 1}), 3)
    assert request.plan.topology.instances == 3
    assert request.job.hosts is None


@pytest.mark.parametrize("instances", [0, 5, -1])
def test_instances_that_can_not_share_the_batch_are_refused_with_those_that_can(tmp_path: Path, instances: int) -> None:
    with pytest.raises(UserError, match=rf"12 micro batches of 4 samples, and {instances} instances can't") as refused:
        resume.with_instances(trained(tmp_path, {}), instances)
    assert refused.value.cure == "Give --instances one of 1, 2, 3, 4, 6, 12"


def test_only_sixteen_numbers_are_named() -> None:
    resume.refuse_uneven(1, 720720, 720720)
    with pytest.raises(UserError) as refused:
        resume.refuse_uneven(1, 720720, 17)
    assert refused.value.cure.count(",") == 15


def test_an_array_and_a_command_keep_their_instances(tmp_path: Path) -> None:
    paths = trained(tmp_path, {})
    paths.of_element(0).folder.mkdir(parents=True)
    for whole_or_part in (paths, paths.of_element(0)):
        whole_or_part.job.write_text(paths.job.read_text())
        with pytest.raises(UserError, match="one script starts every element of an array"):
            resume.with_instances(whole_or_part, 2)
    paths = RunPaths(tmp_path / "command")
    paths.folder.mkdir()
    paths.job.write_text(record(command=["true"]).to_json())
    with pytest.raises(UserError, match="run command runs a command of your own: submit it again with --instances 2"):
        resume.with_instances(paths, 2)


def test_a_recorded_request_is_planned_anew_as_it_was_stated(tmp_path: Path) -> None:
    found = resume.request_of(jobs.read(trained(tmp_path, {"instances": 2, "seed": 5}).job))
    assert (found.plan.topology.instances, found.job.seed, found.origins) == (2, 5, {"seed": "flag --seed"})
