"""Which earlier runs tell how long a job takes, and how long its checkpoints take."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tests.support.render_cases import request
from trainjob.backends import project
from trainjob.cli.look import status
from trainjob.cli.plan import plan
from trainjob.contract.paths import RunPaths
from trainjob.kinds.lookup import find
from trainjob.observe import earlier, index
from trainjob.observe.earlier import EarlierRuns
from trainjob.records import job as jobs
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


def command(*words: str, instances: int = 2) -> jobs.JobRecord:
    return earlier.record_of(request(LOCAL, command=list(words), instances=instances))


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


def test_complete_runs_of_the_same_job_tell_how_long_it_takes(home: Path) -> None:
    wanted = record()
    assert earlier.earlier_runs(wanted) is None
    complete(home, "aaaa-first", wanted)
    alone = earlier.earlier_runs(wanted)
    assert alone == EarlierRuns(1, 9.0, 9.0)
    assert str(alone) == "1 took 9.00 s"
    complete(home, "bbbb-second", wanted, compute_s=30.0)
    complete(home, "cccc-failed", wanted, compute_s=90.0, state="FAILED")
    complete(home, "dddd-other-data", record(data="photos"), compute_s=90.0)
    complete(home, "eeee-other-batch", record(micro_batch=99), compute_s=90.0)
    complete(home, "ffff-longer", record(epochs=9), compute_s=90.0)
    complete(home, "gggg-other-instances", record(instances=4, accumulation=7), compute_s=90.0)
    (home / "runs" / "hhhh-damaged").mkdir()
    (home / "runs" / "hhhh-damaged" / "job.json").write_text("{")
    index.add(RunPaths(home / "runs" / "hhhh-damaged"))
    both = earlier.earlier_runs(wanted)
    assert both == EarlierRuns(2, 9.0, 37.0)
    assert str(both) == "2 took 9.00 s to 37.0 s"
    assert earlier.earlier_runs(wanted, but="aaaa-first") == EarlierRuns(1, 37.0, 37.0)


def test_so_do_those_of_a_command(home: Path) -> None:
    complete(home, "aaaa-first", command("python", "train.py"))
    complete(home, "bbbb-other-words", command("python", "train.py", "--epochs", "9"), compute_s=90.0)
    complete(home, "cccc-other-instances", command("python", "train.py", instances=1), compute_s=90.0)
    assert earlier.earlier_runs(command("python", "train.py")) == EarlierRuns(1, 9.0, 9.0)
    assert earlier.earlier_runs(command("python", "other.py")) is None


def test_all_attempts_count_and_one_without_an_end_tells_nothing(home: Path) -> None:
    paths = complete(home, "aaaa-first", record())
    paths.events.write_text("100\t1\tbegan\t\n110\t1\tended\tREQUEUED 0\n200\t2\tbegan\t\n205\t2\tended\tCOMPLETED 0\n")
    assert earlier.earlier_runs(record()) == EarlierRuns(1, 15.0, 15.0)
    paths.events.write_text("100\t1\tbegan\t\n")
    assert earlier.earlier_runs(record()) is None


def test_only_the_newest_runs_count(home: Path) -> None:
    for number in range(7):
        paths = complete(home, f"aaa{number}-run", record(), compute_s=float(number))
        os.utime(home / "trainjob" / "index" / paths.id, (number, number), follow_symlinks=False)
    assert earlier.earlier_runs(record()) == EarlierRuns(5, 9.0, 13.0)


def test_a_job_that_is_asked_to_stop_too_late_for_a_checkpoint(home: Path) -> None:
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


def test_plan_and_status_show_earlier_runs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--cluster", "local", "--instances", "2", "--epochs", "2"]
    monkeypatch.setattr(project, "top_of_repository", lambda _: None)  # git is a process
    monkeypatch.chdir(home)

    def shown(app: typer.Typer, *words: str) -> str:
        return CliRunner().invoke(app, words, catch_exceptions=False).stdout

    assert "earlier runs" not in shown(plan.app, *words)
    assert "earlier_runs" not in json.loads(shown(plan.app, *words, "--json"))
    of = record()
    same = dataclasses.replace(of, plan=dataclasses.replace(of.plan, cluster="local"))
    complete(home, "aaaa-first", same)
    assert "1 took 9.00 s" in shown(plan.app, *words)
    expected = {"count": 1, "shortest_s": 9.0, "longest_s": 9.0}
    assert json.loads(shown(plan.app, *words, "--json"))["earlier_runs"] == expected
    complete(home, "bbbb-now", same, state="RUNNING")
    assert "1 took 9.00 s" in shown(status.app, "status", "bbbb")
    assert json.loads(shown(status.app, "status", "bbbb", "--json"))["earlier_runs"] == expected
    assert "earlier runs" not in shown(status.app, "status", "aaaa")
