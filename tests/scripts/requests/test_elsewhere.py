"""`resume --cluster`: what is refused loses nothing, and what is copied is what was there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.checkpoint_folders import saved
from tests.support.records import record
from tests.support.run_folders import made, made_element, recorded
from tests.support.told_back_end import NEW, Told, told_as
from trainjob.backends import mirror
from trainjob.backends.base import NotSubmittedError
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.machines.access import HERE
from trainjob.observe import index
from trainjob.records.job import ClusterRecord, RequestRecord
from trainjob.requests import elsewhere


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Told:
    monkeypatch.chdir(tmp_path)
    Path("clusters").mkdir()
    Path("clusters/other.yaml").write_text(f"kind: local\nruns_dir: {tmp_path}/elsewhere\n")
    Path("clusters/small.yaml").write_text("kind: local\nmax_instances: 1\n")
    return told_as(monkeypatch, "detached")


@pytest.fixture
def run(told: Told, tmp_path: Path) -> RunPaths:
    """Return a run of the script train.py that has failed, as its back end says, too."""
    del told
    paths = made(tmp_path / "runs", "abcd-it", state="FAILED", native={"job_id": "7"}, project={"start": "src"})
    command = ["python", "train.py"]
    asked = RequestRecord(ClusterRecord("local", {"kind": "local"}, "catalog local"), {"command": command})
    paths.job.write_text(record(2, name="it", command=command, request=asked).to_json())
    for name, text in (
        ("code/project/src/train.py", "print(1)\n"),
        ("code/project/src/out/model.pt", "weights"),
        (".token", "old"),
        ("job.sh", "old"),
        ("job_id", "7"),
        ("excluded_nodes", "node1\t1\tfaulty\n"),
        ("logs/rank-0000.log", "as it ran\n"),
    ):
        (paths.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (paths.folder / name).write_text(text)
    return paths


def content(top: Path) -> dict[str, bytes]:
    """Return every file but what `status` notes of an end."""
    files = (path for path in sorted(top.rglob("*")) if path.is_file() and path.name != ".settled.json")
    return {str(path.relative_to(top)): path.read_bytes() for path in files}


def ignored(_: str) -> None:
    pass


def test_a_run_goes_on_as_a_copy_of_its_own_files(told: Told, run: RunPaths) -> None:
    said: list[str] = []
    moved = elsewhere.resume(run, "other", warn=said.append)
    assert (moved.folder.parent.name, index.find(moved.id).folder) == ("elsewhere", moved.folder)
    found, before = recorded(moved), recorded(run)
    assert (found.attempt, found.cluster, found.native, found.continues) == (2, "other", NEW, run.id)
    assert (before.attempt, before.cluster, before.continued_as) == (1, "local", moved.id)
    assert told.started[0] is not None
    assert told.started[0].native is None  # it was recorded before it began
    copied = content(moved.folder)
    assert copied["code/project/src/out/model.pt"] == b"weights"
    assert copied["logs/rank-0000.log"] == b"as it ran\n"
    assert b"--working-folder code/project/src" in copied["job.sh"]
    assert {"job_id", "excluded_nodes", ".token", ".lock"}.isdisjoint(copied)
    assert said == ["files that the command keeps outside of its run directory are not copied"]


def in_scheduler(run: RunPaths) -> None:
    Path(run.submission).write_text(run.submission.read_text().replace('"attempt"', '"is_unknown": true, "attempt"'))


def damaged(run: RunPaths) -> None:
    (saved(run, 100) / "model.safetensors").unlink()


def running(run: RunPaths) -> None:
    made_element(run, 0, "FAILED")


def full(_: RunPaths) -> None:
    Path("clusters/other.yaml").write_text("kind: local\nruns_dir: /proc/no\n")


def no_script(run: RunPaths) -> None:
    (run.project / "src/train.py").unlink()


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 42)


@pytest.mark.parametrize(("put", "said"), [(os.mkfifo, "is no regular file"), (sparse, "has room")])
def test_a_copy_without_an_end_is_not_begun(
    told: Told, run: RunPaths, tmp_path: Path, put: Callable[[Path], None], said: str
) -> None:
    before = recorded(run)
    put(run.project / "big")
    with pytest.raises(UserError, match=said):
        elsewhere.resume(run, "other", warn=ignored)
    assert (recorded(run), told.started) == (before, [])
    assert not list((tmp_path / "elsewhere").glob("*")) + list((tmp_path / "elsewhere").glob(".*"))


def test_a_name_that_no_job_may_have_is_damage(told: Told, run: RunPaths) -> None:
    run.job.write_text(run.job.read_text().replace('"name": "it"', '"name": "../../x"'))
    with pytest.raises(UserError, match=r"job\.json is damaged: name: read"):
        elsewhere.resume(run, "other", warn=ignored)
    assert told.started == []


@pytest.mark.parametrize(
    ("cluster", "options", "fault", "said"),
    [
        ("small", {}, None, "Nearest that works: --instances 1"),
        ("slurm-gpu", {}, None, "its file lacks directives.partition"),
        ("nowhere", {}, None, 'no cluster is called "nowhere"'),
        ("other", {"instances": 3}, None, "runs a command of your own"),
        ("other", {}, in_scheduler, "its scheduler may still have its job"),
        ("other", {}, running, "go on where they are"),
        ("other", {}, damaged, "No checkpoint of this run is sound"),
        ("other", {}, full, "/proc/no"),
        ("other", {}, no_script, "train.py does not exist"),
    ],
)
def test_a_refusal_loses_nothing(
    run: RunPaths, tmp_path: Path, cluster: str, options: Any, fault: Callable[[RunPaths], None] | None, said: str
) -> None:
    if fault is not None:
        fault(run)
    before = content(run.folder)
    with pytest.raises(UserError, match=said):
        elsewhere.resume(run, cluster, warn=ignored, **options)
    assert content(run.folder) == before
    assert index.ids() == [run.id]
    assert not (tmp_path / "elsewhere").exists() or os.listdir(tmp_path / "elsewhere") == []


def test_a_command_that_was_let_pass_once_may_go_on_and_a_new_prologue_has_to_be_clean(
    run: RunPaths, tmp_path: Path
) -> None:
    command = ["python", "train.py", "--api-key", "0123456789abcdef0123"]
    asked = RequestRecord(ClusterRecord("local", {"kind": "local"}, "catalog local"), {"command": command})
    run.job.write_text(record(2, name="it", command=command, request=asked).to_json())
    file = Path("clusters/other.yaml")
    clean = file.read_text()
    file.write_text(f"{clean}env: {{TOOL: 'x --password=Sup3rS3cret99'}}\n")
    with pytest.raises(UserError, match=r"env\.TOOL in the file of cluster other: a password or key"):
        elsewhere.resume(run, "other", warn=ignored)
    file.write_text(clean)
    assert elsewhere.resume(run, "other", warn=ignored).folder.is_relative_to(tmp_path / "elsewhere")


def test_a_job_that_is_not_taken_leaves_no_copy_and_the_run_may_go_on(told: Told, run: RunPaths) -> None:
    told.fail(NotSubmittedError("sbatch: no", "wait"))
    with pytest.raises(NotSubmittedError):
        elsewhere.resume(run, "other", warn=ignored)
    assert index.ids() == [run.id]
    assert recorded(run).continued_as is None
    told.starts = lambda: NEW
    moved = elsewhere.resume(run, "other", warn=ignored)
    with pytest.raises(UserError, match=f"went on as run {moved.id}"):
        elsewhere.resume(run, "other", warn=ignored)
    # One that was removed is in nobody's way.
    index.forget(moved.id)
    assert elsewhere.resume(run, "other", warn=ignored).id != moved.id


def test_a_copy_with_another_byte_is_refused(run: RunPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    received = HERE.receive

    def torn(source: str, target: Path) -> None:
        received(source, target)
        (target / "code/project/src/out/model.pt").write_text("weighty")

    monkeypatch.setattr(HERE, "receive", torn)
    with pytest.raises(UserError, match=r"\./code/project/src/out/model\.pt in .* is not what arrived here"):
        mirror.copy(run, recorded(run), tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
