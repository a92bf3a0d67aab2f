"""Rendered scripts, run for real: what a user typed is what each rank gets, and none of it runs."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.attack import Attack, count_words
from tests.support.examples import examples
from tests.support.programs import ran
from tests.support.render_cases import HOSTILE, TEXT, cluster, rendered, request
from trainjob.backends import folder
from trainjob.contract.paths import RunPaths
from trainjob.render.request import Request

# What a rank was given, one JSON file a rank.
RECORDER = """
import json, os, sys
with open(os.path.join(sys.argv[1], os.environ["RANK"] + ".json"), "w", encoding="utf-8") as stream:
    json.dump({"arguments": sys.argv[2:], "environment": dict(os.environ), "folder": os.getcwd()}, stream)
"""
# Names that our scripts might have used for themselves, or that change what a script finds.
TAKEN_NAMES = (
    *(
        "python",
        "run_dir",
        "cancelled",
        "launcher",
        "code",
        "state",
        "last",
        "line",
        "name",
        "HOME",
        "FUNCNEST",
        "TMOUT",
    ),
    *("CDPATH", "PATH", "ENV", "PS4", "GLOBIGNORE", "EPOCHS", "OPTARG", "REPLY", "LANG"),
)


def run(base: Path, asked: Request, **environment: str) -> tuple[RunPaths, list[dict[str, Any]]]:
    """Run the rendered job of two ranks by hand; return the run and what its ranks recorded."""
    paths = folder.create(base / "a run", rendered(asked), None, None)
    (paths.project / asked.project_folder).mkdir(parents=True)
    given = {name: value for name, value in os.environ.items() if name != "CDPATH"}
    ended = ran(["bash", "a run/job.sh"], folder=base, environ={**given, **environment})
    logs = "".join(path.read_text() for path in paths.logs.iterdir())
    assert ended.returncode == 0, ended.stderr + logs
    return paths, [json.loads((base / f"{rank}.json").read_text()) for rank in (0, 1)]


def recording(base: Path, *arguments: str, python: str = sys.executable) -> list[str]:
    recorder = base / "recorder.py"
    recorder.write_text(RECORDER)
    return [python, str(recorder), str(base), *arguments]


def check_arrival(base: Path, texts: list[str], *, python: str = sys.executable, **environment: str) -> list[list[str]]:
    """Return the arguments of each rank."""
    values = {f"VALUE_{number}": text for number, text in enumerate(texts)}
    asked = request(
        cluster(env=values, python=python),
        name="'; touch canary; $(touch canary) #",
        command=recording(base, *texts, python=python),
        instances=2,
    )
    paths, ranks = run(base, asked, **environment)
    for rank in ranks:
        assert {name: rank["environment"][name] for name in values} == values
    assert (paths.state.read_text(), paths.exit_code.read_text()) == ("COMPLETED\n", "0\n")
    assert list(base.rglob("*canary*")) == []
    return [rank["arguments"] for rank in ranks]


def test_hostile_text_arrives_unchanged_and_never_runs(attack: Attack, tmp_path: Path) -> None:
    arrived = check_arrival(tmp_path, HOSTILE)
    assert arrived == [HOSTILE] * 2
    count_words(attack, "local", HOSTILE, arrived)


@examples(3)
@given(texts=st.lists(TEXT, min_size=50, max_size=50))
def test_any_text_arrives_unchanged_and_never_runs(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    assert check_arrival(tmp_path_factory.mktemp("any"), texts) == [texts] * 2


def test_hostile_text_arrives_under_the_oldest_python(tmp_path: Path, needs: Callable[[str], Path]) -> None:
    assert check_arrival(tmp_path, HOSTILE, python=str(needs("python3.8").resolve())) == [HOSTILE] * 2


def test_any_environment_name_arrives(tmp_path: Path) -> None:
    values = {name: f"/nowhere/{name}" for name in TAKEN_NAMES}
    asked = request(cluster(env=values, python=sys.executable), command=recording(tmp_path), instances=2)
    paths, ranks = run(tmp_path, asked)
    # The cluster file's interpreter is what a command finds as `python`, whatever PATH the file gives.
    arrived = {**values, "PATH": f"{Path(sys.executable).parent}:{values['PATH']}"}
    for rank in ranks:
        assert {name: rank["environment"][name] for name in values} == arrived
    assert paths.state.read_text() == "COMPLETED\n"


def test_a_cdpath_of_the_user_leads_nowhere(tmp_path: Path) -> None:
    decoy = tmp_path / "home"
    (decoy / "code/trainjob").mkdir(parents=True)
    (decoy / "code/trainjob/__init__.py").write_text("raise SystemExit('the wrong code')")
    (decoy / "a run").mkdir()
    asked = request(cluster(python=sys.executable), command=recording(tmp_path), instances=2)
    paths, ranks = run(tmp_path, asked, CDPATH=str(decoy))
    assert [rank["folder"] for rank in ranks] == [str(paths.project)] * 2


def test_a_cluster_called_anything_stays_in_its_comment(tmp_path: Path) -> None:
    plain = request(cluster(python=sys.executable), command=recording(tmp_path), instances=2)
    odd = dataclasses.replace(plain.plan, cluster="x\n touch canary #\r touch canary")
    run(tmp_path, dataclasses.replace(plain, plan=odd))
    assert list(tmp_path.rglob("*canary*")) == []


def test_ranks_start_where_the_command_was_given(tmp_path: Path) -> None:
    plain = request(cluster(python=sys.executable), command=recording(tmp_path), instances=2)
    asked = dataclasses.replace(plain, project_folder="src/-deep er'")
    paths, ranks = run(tmp_path, asked)
    assert [rank["folder"] for rank in ranks] == [str(paths.project / "src/-deep er'")] * 2


def test_the_jobs_environment_is_not_the_scripts_own(tmp_path: Path) -> None:
    place = cluster(env={"PATH": "/nowhere", "LD_PRELOAD": "/nowhere"}, python="python3")
    paths = folder.create(tmp_path / "run", rendered(request(place, command=["true"])), None, None)
    ended = subprocess.run(["bash", paths.job_script], capture_output=True, check=False)
    assert ended.returncode == 127
    assert (paths.state.read_text(), paths.exit_code.read_text()) == ("FAILED\n", "127\n")


def test_the_prologue_runs_before_the_ranks_and_can_be_skipped(tmp_path: Path) -> None:
    prologue = ['export MADE="$(printf \'by %s\' "$ASKED")"', "cd /", 'test -z "$UNSET"']
    place = cluster(prologue=prologue, env={"ASKED": "the env"}, python=sys.executable)
    asked = request(place, command=recording(tmp_path), instances=2)
    _, ranks = run(tmp_path, asked)
    assert [rank["environment"]["MADE"] for rank in ranks] == ["by the env"] * 2
    (tmp_path / "again").mkdir()
    asked = request(place, command=recording(tmp_path / "again"), instances=2)
    _, ranks = run(tmp_path / "again", asked, TRAINJOB_PROLOGUE="skip")
    assert ["MADE" in rank["environment"] for rank in ranks] == [False] * 2


def test_a_prologue_that_fails_ends_the_run_before_a_rank_starts(tmp_path: Path) -> None:
    place = cluster(prologue=["trap 'echo mine' EXIT", "(exit 3)"], python=sys.executable)
    paths = folder.create(tmp_path / "run", rendered(request(place, command=recording(tmp_path))), None, None)
    ended = subprocess.run(["bash", paths.job_script], capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (3, b"mine\n")
    assert (paths.state.read_text(), paths.exit_code.read_text()) == ("FAILED\n", "3\n")
    assert [path.name for path in paths.logs.iterdir() if path.stat().st_size] == []


def test_a_second_start_is_a_second_attempt(tmp_path: Path) -> None:
    asked = request(cluster(python=sys.executable), command=recording(tmp_path), instances=2)
    paths, _ = run(tmp_path, asked)
    paths.requeue.touch()
    subprocess.run(["bash", paths.job_script], capture_output=True, check=True)
    assert (paths.attempt.read_text(), paths.state.read_text()) == ("2\n", "COMPLETED\n")
    attempts = [
        json.loads((tmp_path / f"{rank}.json").read_text())["environment"]["TRAINJOB_ATTEMPT"] for rank in (0, 1)
    ]
    assert attempts == ["2", "2"]


def test_a_data_folder_is_told_to_ranks_and_can_be_redirected(tmp_path: Path) -> None:
    place = cluster(data_dir="~/data sets", python=sys.executable)
    _, ranks = run(tmp_path, request(place, command=recording(tmp_path), instances=2), HOME="/home/me")
    assert [rank["environment"]["TRAINJOB_DATA_DIR"] for rank in ranks] == ["/home/me/data sets"] * 2
    (tmp_path / "again").mkdir()
    asked = request(place, command=recording(tmp_path / "again"), instances=2)
    _, ranks = run(tmp_path / "again", asked, TRAINJOB_DATA_DIR="/else where")
    assert [rank["environment"]["TRAINJOB_DATA_DIR"] for rank in ranks] == ["/else where"] * 2
