"""`trainjob rehearse` on a slurm cluster file, as a user runs it: the same bytes, a verdict, nothing left behind."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.local_runs import Here, first_line, marked, what_follows
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(900)

ASKED = ("--cluster", "slurm-gpu", "--instances", "2", "--hosts", "2")


@pytest.fixture
def user(needs: Callable[[str], Path], here: Here, monkeypatch: pytest.MonkeyPatch) -> Here:
    needs("slurm")
    monkeypatch.setattr("tests.support.local_runs.LIMIT_S", 300.0)
    return here


def rehearsals(here: Here) -> list[Path]:
    return list((here.folder / "data/trainjob/rehearsals").glob("*"))


def test_the_bytes_that_ran_are_those_of_render(user: Here, tmp_path: Path) -> None:
    verdict = user.json("rehearse", *ASKED, "--updates", "3", "--keep")
    user.run("render", *ASKED, "-o", str(tmp_path / "rendered"))
    for name in ("job.sbatch", "job.json"):
        assert (Path(verdict["folder"]) / name).read_bytes() == (tmp_path / "rendered" / name).read_bytes()
    assert (verdict["passed"], verdict["same_bytes"], verdict["state"]) == (True, True, "COMPLETED")
    assert (verdict["attempts"], verdict["update"]) == (1, 3)
    steps = list(verdict["seconds"].values())
    assert steps == sorted(steps)
    assert verdict["redirects"]["TRAINJOB_DEVICE"] == "cpu"


@pytest.mark.parametrize(("fault", "state"), [("cancel", "CANCELLED"), ("rank-death", "FAILED")])
def test_a_fault_has_its_stated_outcome_and_leaves_no_folder(user: Here, fault: str, state: str) -> None:
    reported = user.run("rehearse", *ASKED, "--inject", fault).stdout
    assert f"PASSED: {state} after" in reported
    assert reported.count("ranks train on the CPU") == 1
    assert "same bytes" in reported
    assert not rehearsals(user)


def test_a_script_that_fails_fails_the_rehearsal_and_is_kept(user: Here) -> None:
    user.write("my_script.py", 'print("no data today")\nraise SystemExit(4)\n')
    reported = user.run("rehearse", *ASKED, "--", "python", "my_script.py", code=1).stdout
    assert "FAILED: the job is FAILED" in reported
    assert "no data today" in reported
    (kept,) = rehearsals(user)
    assert f"kept the run directory: {kept}" in reported


def test_an_array_is_rehearsed_with_what_each_element_has_of_its_own(user: Here) -> None:
    user.write("sweep.yaml", '- arguments: ["0"]\n- arguments: ["5"]\n')
    asked = ("rehearse", *ASKED, "--sweep", "sweep.yaml")
    reported = user.run(*asked, "--", "sh", "-c", 'exit "$1"', "sh", code=1).stdout
    assert "same bytes" in reported
    assert "FAILED: array element 1 is FAILED" in reported
    reported = user.run(*asked, "--array", "0", "--", "sh", "-c", 'exit "$1"', "sh").stdout
    assert "PASSED: COMPLETED: 1 array element" in reported
    output = user.run("rehearse", *ASKED, "--array", "0-1", "--inject", "cancel", "--", "true", code=1).stderr
    assert "--inject cancel works on a single job. Leave out --array and --sweep" in output


def test_ctrl_c_leaves_nothing_behind(user: Here) -> None:
    user.write("my_script.py", "import time\ntime.sleep(600)\n")
    process = user.start("rehearse", *ASKED, "--", "python", "my_script.py")
    first_line(process)
    until(lambda: any((folder / "logs/rank-0001.log").exists() for folder in rehearsals(user)), "the ranks", 300)
    process.send_signal(signal.SIGINT)
    what_follows(process)
    assert process.returncode == 130
    until(lambda: not marked(user.folder), "every process to end", 60)
    assert not rehearsals(user)
