"""job.json, failure.json, attempts, names and codes: what both halves read the same way."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import each
from tests.support.records import record
from tests.support.run_folders import made
from trainjob.contract import environment, exits, states
from trainjob.contract.environment import Ranking
from trainjob.contract.paths import RunPaths
from trainjob.records import attempts, failure, job
from trainjob.records import submission as submissions
from trainjob.records.failure import Failure
from trainjob.records.files import DamagedError

RECORD = record(command=["a", "ü"], environment={"A": "b"})


def text(**changes: Any) -> str:
    return json.dumps({**json.loads(RECORD.to_json()), **changes})


def refused(content: str) -> str:
    with pytest.raises(job.ContractError) as caught:
        job.parse(content, "there/job.json")
    return str(caught.value)


# --- job.json.


def test_a_record_comes_back() -> None:
    assert job.parse(RECORD.to_json()) == RECORD


def test_the_same_record_is_the_same_text() -> None:
    other = dataclasses.replace(RECORD, environment={"b": "1", "a": "2"})
    assert dataclasses.replace(RECORD, environment={"a": "2", "b": "1"}).to_json() == other.to_json()


@pytest.mark.parametrize(("number", "message"), [(2, "2"), (0, "0"), ("1", "1"), (None, "None")])
def test_another_contract_names_both_numbers(number: object, message: str) -> None:
    assert refused(text(contract=number)) == (
        f"there/job.json speaks contract {message} and this trainjob speaks 1: "
        "use the trainjob that wrote it (a run directory carries its own in code/)"
    )


@pytest.mark.parametrize("content", ["[]", "1", "null", '"x"', "{}"])
def test_json_that_is_no_record_speaks_no_contract(content: str) -> None:
    assert "speaks contract None and this trainjob speaks 1" in refused(content)


@pytest.mark.parametrize("content", ["", "{", "{'a': 1}", '{"contract": 1'])
def test_what_is_not_json_is_said_so(content: str) -> None:
    assert refused(content).startswith("there/job.json is not JSON: ")


def changed(path: str, value: object) -> str:
    """Return the record's text with another value at a dotted path."""
    fields = json.loads(RECORD.to_json())
    *outer, last = path.split(".")
    inner = fields
    for key in outer:
        inner = inner[key]
    inner[last] = value
    return json.dumps(fields)


@each(
    ("path", "value", "expected"),
    [
        ("plan.topology.instances", "2", 'plan.topology.instances is "2", expected a whole number'),
        ("plan.topology.instances", True, "plan.topology.instances is true, expected a whole number"),
        ("plan.topology", [1], "plan.topology is [1], expected an object"),
        ("asked.cluster.from", 3, "asked.cluster.from is 3, expected text"),
        ("asked", None, "asked is null, expected an object"),
        ("command", ["a", 1], "command[1] is 1, expected text"),
        ("environment", {"A": 1}, "environment.A is 1, expected text"),
        ("plan.warnings", {}, "plan.warnings is {}, expected a list"),
        ("train", {}, "train.task is missing"),
        ("name", "x" * 99 + "", None),
    ],
)
def test_a_field_of_another_type_is_named_with_its_value(path: str, value: object, expected: str | None) -> None:
    if expected is None:
        assert job.parse(changed(path, value)).name == value
    else:
        assert refused(changed(path, value)) == f"there/job.json is damaged: {expected}"


@pytest.mark.parametrize("path", ["surprise", "plan.surprise", "asked.cluster.surprise"])
def test_fields_that_only_a_newer_trainjob_knows_are_ignored(path: str) -> None:
    assert job.parse(changed(path, {"a": 1})) == RECORD


def test_a_missing_field_is_named() -> None:
    fields = json.loads(RECORD.to_json())
    del fields["plan"]
    assert refused(json.dumps(fields)) == "there/job.json is damaged: plan is missing"


def test_json_that_is_nested_without_end_is_refused() -> None:
    assert refused("[" * 100_000) == "there/job.json is nested more than 64 levels deep"


def test_a_folder_without_a_job(tmp_path: Path) -> None:
    with pytest.raises(job.ContractError, match=r"job.json does not exist: is this a run directory\?"):
        job.read(tmp_path / "job.json")


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_bytes(b"\xff\xfe")
    with pytest.raises(job.ContractError, match="is not JSON"):
        job.read(tmp_path / "job.json")


# --- failure.json.


def failed(rank: int, **changes: Any) -> Failure:
    fields = {"attempt": 1, "rank": rank, "host": "h", "exit_code": 1, "command": ["x"], "tail": ["ü\udcff"]}
    return Failure(**{**fields, **changes})


def test_the_first_failure_is_the_one_that_counts(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    assert failure.record_first(paths, failed(3))
    assert not failure.record_first(paths, failed(1))
    assert failure.read(paths) == failed(3)
    assert os.listdir(tmp_path) == ["failure.json"]


def test_a_rank_of_an_older_attempt_is_never_the_first(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    older, newer = failed(3), failed(3, attempt=2)
    # It wrote between the start of the newer attempt, which removes the file, and the first failure of that one.
    paths.attempt.write_text("1\n")
    assert failure.record_first(paths, older)
    paths.attempt.write_text("2\n")
    assert failure.record_first(paths, newer)
    paths.failure.unlink()
    assert not failure.record_first(paths, older)
    assert failure.read(paths) is None


def test_of_racing_writers_one_is_first(tmp_path: Path) -> None:
    paths, barrier, won = RunPaths(tmp_path), threading.Barrier(12), []

    def race(rank: int) -> None:
        barrier.wait()
        if failure.record_first(paths, failed(rank)):
            won.append(rank)

    threads = [threading.Thread(target=race, args=(rank,)) for rank in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert failure.read(paths) == failed(won[0])
    assert os.listdir(tmp_path) == ["failure.json"]


def test_no_failure_is_none(tmp_path: Path) -> None:
    assert failure.read(RunPaths(tmp_path)) is None
    RunPaths(tmp_path).failure.write_text("{")
    assert failure.read(RunPaths(tmp_path)) is None


@pytest.mark.parametrize(
    ("log", "tail"),
    [
        (b"", []),
        (b"one\ntwo\n", ["one", "two"]),
        (b"--- attempt 1\nold\n--- attempt 2\nnew\n\n \nlast", ["new", "last"]),
        (b"--- attempt 1\nold\n--- attempt 2\n", []),
        (b"bytes \xff\n", ["bytes �"]),
        (b"".join(b"line %d\n" % number for number in range(100)), [f"line {number}" for number in range(60, 100)]),
        (b"--- attempt 1\n" + b"x" * 70_000 + b"\nlast\n", ["x" * (64 * 1024 - 6), "last"]),
    ],
)
def test_the_tail_is_of_the_newest_attempt(tmp_path: Path, log: bytes, tail: list[str]) -> None:
    (tmp_path / "log").write_bytes(log)
    assert failure.tail_of_attempt(tmp_path / "log") == tail


def test_a_log_that_is_not_there_has_no_tail(tmp_path: Path) -> None:
    assert failure.tail_of_attempt(tmp_path / "log") == []


# --- Attempts.


@pytest.mark.parametrize(("written", "current", "stale"), [(None, 0, False), ("1\n", 1, False), ("2\n", 2, True)])
def test_a_newer_attempt_fences_an_older_one(tmp_path: Path, written: str | None, current: int, stale: bool) -> None:
    paths = RunPaths(tmp_path)
    if written:
        paths.attempt.write_text(written)
    assert (attempts.current(paths), attempts.is_stale(paths, 1)) == (current, stale)


# --- What launchers say.


@each(
    ("local_size", "node", "number"),
    [
        ("4(x2)", 1, 4),
        ("4", 0, 4),
        ("2,1", 0, 2),
        ("2,1", 1, 1),
        ("2(x3),1", 2, 2),
        ("2(x3),1", 3, 1),
        ("16(x128),3(x2)", 127, 16),
        ("16(x128),3(x2)", 129, 3),
    ],
)
def test_slurm_says_how_many_tasks_each_node_has(local_size: str, node: int, number: int) -> None:
    message = {"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8", "SLURM_STEP_TASKS_PER_NODE": local_size}
    assert environment.ranking("slurm", {**message, "SLURM_NODEID": str(node)}) == Ranking(5, 1, 8, number)


def test_open_mpi() -> None:
    words = {"RANK": "5", "LOCAL_RANK": "1", "SIZE": "8", "LOCAL_SIZE": "4"}
    message = {f"OMPI_COMM_WORLD_{word}": value for word, value in words.items()}
    assert environment.ranking("openmpi", message) == Ranking(5, 1, 8, 4)


def test_what_a_launcher_did_not_set_is_named() -> None:
    with pytest.raises(KeyError, match="SLURM_PROCID"):
        environment.ranking("slurm", {})


# --- Redirects.


def test_only_redirects_that_hold_something_are_set() -> None:
    environ = {"TRAINJOB_DEVICE": "cpu", "TRAINJOB_PYTHON": "", "TRAINJOB_RUN_DIR": "/x", "PATH": "/bin"}
    assert environment.set_redirects(environ) == {"TRAINJOB_DEVICE": "cpu"}
    assert environment.redirect(environ, "TRAINJOB_DEVICE") == "cpu"
    assert environment.redirect(environ, "TRAINJOB_PYTHON") is None
    assert environment.redirect(environ, "TRAINJOB_DATA_DIR") is None


def test_a_redirect_that_is_none_is_our_mistake() -> None:
    with pytest.raises(KeyError, match="TRAINJOB_RUN_DIR"):
        environment.redirect({}, "TRAINJOB_RUN_DIR")


def test_every_redirect_says_what_it_is() -> None:
    assert all(name.startswith("TRAINJOB_") and meaning for name, meaning in environment.REDIRECTS.items())


# --- States, codes and names.


def test_every_state_is_active_or_ended() -> None:
    assert set(states.ALL) == states.ACTIVE | states.ENDED
    assert not states.ACTIVE & states.ENDED
    assert states.ENDED - {states.COMPLETED} >= states.RESUMABLE


@pytest.mark.parametrize(("status", "code"), [(0, 0), (3, 3), (-9, 137), (-15, 143)])
def test_exit_codes_are_the_shells(status: int, code: int) -> None:
    assert exits.from_wait_status(status) == code


def test_names_of_a_run_directory(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path / "abcd-run")
    assert paths.id == "abcd-run"
    assert paths.rank_log(7) == paths.logs / "rank-0007.log"
    assert paths.checkpoint(200) == paths.checkpoints / "update-00000200"


def test_a_run_in_a_folder_called_roles_is_no_server(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path / "roles" / "abcd")
    assert (paths.role, paths.id, paths.run) == (None, "abcd", paths)
    run = made(tmp_path, "wxyz")
    assert (run.of_role("server").role, run.of_role("server").id) == ("server", "wxyz:server")


def test_the_id_of_the_folder_one_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert RunPaths(".").id == tmp_path.name


# --- submission.json.


@pytest.mark.parametrize("script", ["../../../evil.sh", "-c", "/tmp/evil.sh", "job.sh x", ""])
def test_only_a_job_script_is_a_runs_script(tmp_path: Path, script: str) -> None:
    """It is executed when the run is resumed."""
    paths = made(tmp_path, "abcd")
    written = json.loads(paths.submission.read_text())
    paths.submission.write_text(json.dumps({**written, "script": script}))
    with pytest.raises(DamagedError, match=r"script is .*, expected job\.sh or job\.sbatch"):
        submissions.load(paths)
