"""Which earlier runs a prediction is made from, and how it is compared with what came of it."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.render_cases import request
from trainjob.backends import project
from trainjob.cli.plan import plan
from trainjob.contract.paths import RunPaths
from trainjob.kinds.lookup import find
from trainjob.observe import index
from trainjob.observe.predictions import earlier
from trainjob.observe.report.report import report
from trainjob.records import job as jobs
from trainjob.records import prediction
from trainjob.records.prediction import Prediction, Range
from trainjob.records.typed import to_json
from trainjob.render.record import job_record

LOCAL = find("local").cluster


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path


def record(**changes: Any) -> jobs.JobRecord:
    found = earlier.record_of(request(LOCAL, instances=2, epochs=2))
    assert found.train is not None
    return dataclasses.replace(found, train=dataclasses.replace(found.train, **changes))


def complete(
    home: Path, name: str, of: jobs.JobRecord, *, compute_s: float = 2.0, state: str = "COMPLETED"
) -> RunPaths:
    """Make a run of 100 updates that began 5 s before it trained, and ended 1 s after."""
    paths = RunPaths(home / "runs" / name)
    paths.folder.mkdir(parents=True)
    paths.job.write_text(of.to_json())
    seconds = {"data": 0.0, "compute": compute_s, "communication": 1.0, "checkpoint": 0.0}
    lines = [
        {"kind": "begin", "attempt": 1, "epoch": 0, "update": 0, "time": 105.0},
        {"kind": "train", "attempt": 1, "epoch": 1, "update": 100, "samples_per_s": 1.0, "seconds": seconds},
        {"kind": "end", "attempt": 1, "epoch": 1, "update": 100, "training_seconds": 3.0, "peak_memory_bytes": 10**8},
    ]
    paths.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    paths.events.write_text(f"100\t1\tbegan\t\n{106 + compute_s + 1}\t1\tended\t{state} 0\n")
    paths.attempt.write_text("1\n")
    paths.state.write_text(f"{state}\n")
    index.add(paths)
    return paths


def test_complete_runs_of_the_same_work_tell(home: Path) -> None:
    wanted = record()
    complete(home, "aaaa-first", wanted)
    complete(home, "bbbb-failed", wanted, state="FAILED")
    complete(home, "cccc-other-data", record(data="photos"))
    complete(home, "dddd-other-batch", record(micro_batch=99))
    complete(home, "eeee-other-instances", record(instances=4))
    (home / "runs" / "ffff-damaged").mkdir()
    (home / "runs" / "ffff-damaged" / "job.json").write_text("{")
    index.add(RunPaths(home / "runs" / "ffff-damaged"))
    assert sorted(one.id for one in earlier.earlier(wanted)) == ["aaaa-first", "eeee-other-instances"]


def test_what_a_run_shows(home: Path) -> None:
    complete(home, "aaaa-first", record())
    (shown,) = earlier.earlier(record())
    assert (shown.compute_s, shown.reduce_s) == pytest.approx((0.02, 0.01))
    assert (shown.start_up_s, shown.ending_s, shown.memory_bytes) == pytest.approx((5, 1, 1e8))


def test_the_newest_runs_come_last_and_long_records_are_not_read(home: Path) -> None:
    for number, name in enumerate(("cccc-old", "aaaa-mid", "bbbb-new")):
        paths = complete(home, name, record())
        os.utime(home / "trainjob" / "index" / paths.id, (number, number), follow_symlinks=False)
    assert [one.id for one in earlier.earlier(record())] == ["cccc-old", "aaaa-mid", "bbbb-new"]
    with (home / "runs" / "aaaa-mid" / "metrics.jsonl").open("a") as stream:
        stream.write("\n" * 5_000_000)
    assert [one.id for one in earlier.earlier(record())] == ["cccc-old", "bbbb-new"]


def test_a_job_that_is_told_to_stop_too_late_for_a_checkpoint(home: Path) -> None:
    slurm = find("slurm-gpu").cluster
    job, short = (request(slurm, task="digits-cnn", time_limit=limit) for limit in (None, "00:10:00"))
    paths = complete(home, "aaaa-slow", job_record(short))
    assert list(earlier.too_late_for_a_checkpoint(short)) == []
    with paths.metrics.open("a") as stream:
        stream.write('{"kind":"checkpoint","attempt":1,"epoch":1,"update":9,"stood_still_s":1,"durable_s":70.4}\n')
    (problem,) = earlier.too_late_for_a_checkpoint(short)
    assert "took up to 70 s" in problem.text
    assert "120 s before the time limit, which leaves no time for two" in problem.text
    assert "margin_s in the cluster file to 201" in problem.cure
    unlimited = dataclasses.replace(job, cluster=job.cluster.changed(time_limit=None))
    assert list(earlier.too_late_for_a_checkpoint(unlimited)) == []


def test_a_prediction_of_a_planned_job(home: Path) -> None:
    job = request(LOCAL, instances=2, epochs=2)
    assert earlier.predict(job) is None
    complete(home, "aaaa-first", earlier.record_of(job))
    found = earlier.predict(job)
    assert found is not None
    assert found.update_s.median == pytest.approx(0.03)
    assert found.basis == "1 earlier run, the newest aaaa-first"
    assert job.plan.batch is not None
    assert found.updates == job.plan.batch.total_updates


def test_a_plan_shows_the_prediction_where_there_is_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--cluster", "local", "--instances", "2", "--epochs", "2"]
    monkeypatch.setattr(project, "_git_top", lambda _: None)  # git is a process
    monkeypatch.chdir(home)

    def shown(*more: str) -> str:
        return CliRunner().invoke(plan.plan, [*words, *more], catch_exceptions=False).stdout

    assert "predicted" not in shown()
    assert "prediction" not in json.loads(shown("--json"))
    of = record()
    complete(home, "aaaa-first", dataclasses.replace(of, plan=dataclasses.replace(of.plan, cluster="local")))
    assert "predicted from 1 earlier run, the newest aaaa-first" in shown()
    assert json.loads(shown("--json"))["prediction"]["update_s"]["median"] == pytest.approx(0.03)


def test_a_command_and_a_job_of_unknown_length_have_no_prediction(home: Path) -> None:
    for job in (request(LOCAL, command=["python", "x.py"]), request(LOCAL, task="my:Task", epochs=1)):
        assert earlier.predict(job) is None


EXPECTED = Prediction(
    instances=2, updates=100, update_s=Range(0.03, 0.02, 0.04), run_s=Range(20, 15, 25), basis="tests"
)


def test_a_prediction_is_compared_with_its_result(home: Path) -> None:
    paths = complete(home, "aaaa-first", record())
    assert report(paths).predictions == []
    EXPECTED.write(paths)
    assert prediction.read(paths) == EXPECTED
    update, run = report(paths).predictions
    assert (update.quantity, update.is_within, run.is_within) == ("seconds per update", True, False)
    assert (update.result, run.result, run.error) == pytest.approx((0.03, 9, 9 / 20 - 1))


def test_only_a_complete_run_is_compared(home: Path) -> None:
    paths = complete(home, "aaaa-first", record(), state="FAILED")
    EXPECTED.write(paths)
    assert report(paths).predictions == ()


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"instances": "x"}', json.dumps({**to_json(EXPECTED), "run_s": 3})]
)
def test_a_damaged_prediction_is_none(home: Path, content: str) -> None:
    paths = complete(home, "aaaa-first", record())
    paths.prediction.write_text(content)
    assert report(paths).predictions == []
