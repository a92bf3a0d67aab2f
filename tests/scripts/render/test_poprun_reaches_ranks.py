"""Rendered scripts of pods, run for real under the stand-in poprun: what was typed is what each rank gets."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.attack import Attack, count_words
from tests.support.pod_cases import pod_request, site
from tests.support.programs import ran
from tests.support.render_cases import HOSTILE, rendered
from trainjob.backends import folder
from trainjob.contract.paths import RunPaths
from trainjob.rehearse import pod

pytestmark = pytest.mark.timeout(300)

RECORDER = """
import json, os, sys
with open(os.path.join(sys.argv[1], os.environ["RANK"] + ".json"), "w", encoding="utf-8") as stream:
    json.dump([sys.argv[2:], dict(os.environ), os.getcwd()], stream)
sys.exit(int(os.environ.get("EXIT") or 0))
"""
# Names that our script might have used for itself.
TAKEN = ("partition", "name", "launcher", "cancelled", "code", "interface", "listed", "enable", "run_id", "CDPATH")


def run(
    base: Path, values: dict[str, Any], *arguments: str, code: int = 0, mpirun: str = "none", **job: Any
) -> tuple[RunPaths, list[Any]]:
    """Run a job of a recorder under the stand-in; return the run and what each rank recorded."""
    pod.write_programs(base / "bin", sys.executable)
    (base / "recorder.py").write_text(RECORDER)
    command = [sys.executable, str(base / "recorder.py"), str(base), *arguments]
    paths = folder.create(base / "a run", rendered(pod_request(values, command=command, **job)), None, None)
    paths.project.mkdir()
    redirects = {"TRAINJOB_PYTHON": sys.executable, "TRAINJOB_PROLOGUE": "skip", "TRAINJOB_INTERFACE": "lo"}
    standin = {"TRAINJOB_STANDIN_VIPU": str(base / "vipu"), "TRAINJOB_STANDIN_MPIRUN": mpirun}
    path = f"{base / 'bin'}{os.pathsep}{os.environ['PATH']}"
    ended = ran(
        ["bash", "a run/job.sh"],
        folder=base,
        environ={**os.environ, **redirects, **standin, "PATH": path},
        timeout_s=250,
    )
    logs = "".join(log.read_text() for log in paths.logs.iterdir())
    assert ended.returncode == code, ended.stdout + ended.stderr + logs
    return paths, [json.loads(file.read_text()) for file in sorted(base.glob("[0-9]*.json"))]


@pytest.mark.parametrize("mpirun", ["none", "real"])
def test_hostile_text_arrives_unchanged_and_never_runs(
    attack: Attack, tmp_path: Path, needs: Callable[[str], Path], mpirun: str
) -> None:
    if mpirun == "real":
        needs("mpirun")
    words = [*HOSTILE, ":", "-np", "-x", ": -np 1 touch canary"]
    environment = {f"VALUE_{number}": text for number, text in enumerate(words)}
    values = site(env={**environment, **{name: f"/nowhere/{name}" for name in TAKEN}})
    paths, ranks = run(tmp_path, values, *words, instances=4, mpirun=mpirun, name="'; touch canary; $(touch canary) #")
    assert len(ranks) == 4
    for arguments, environ, where in ranks:
        assert arguments == words
        assert {name: environ[name] for name in environment} == environment
        assert {name: environ[name] for name in TAKEN} == {name: f"/nowhere/{name}" for name in TAKEN}
        assert where == str(paths.project)
    assert (paths.state.read_text(), paths.exit_code.read_text()) == ("COMPLETED\n", "0\n")
    assert list(tmp_path.rglob("*canary*")) == []
    count_words(attack, "poprun", words, [arguments for arguments, _, _ in ranks])


def test_ranks_know_where_they_stand_and_where_they_meet(tmp_path: Path) -> None:
    _, ranks = run(tmp_path, site(), instances=4)
    reported = [environ for _, environ, _ in ranks]
    assert [one["RANK"] for one in reported] == ["0", "1", "2", "3"]
    assert {one["WORLD_SIZE"] for one in reported} == {"4"}
    assert [one["POPDIST_REPLICA_INDEX_OFFSET"] for one in reported] == ["0", "16", "32", "48"]
    assert {one["MASTER_ADDR"] for one in reported} == {"127.0.0.1"}
    assert len({one["MASTER_PORT"] for one in reported}) == 1
    assert 20000 <= int(reported[0]["MASTER_PORT"]) < 32768
    assert {one["TRAINJOB_ATTEMPT"] for one in reported} == {"1"}


def test_a_partition_that_the_run_made_goes_with_it(tmp_path: Path) -> None:
    values = site(vipu={"server": "ctl", "allocation": "default"})
    paths, ranks = run(tmp_path, values, instances=4)
    assert ranks[0][1]["IPUOF_VIPU_API_PARTITION_ID"] == "trainjob_a_run"
    assert json.loads((tmp_path / "vipu" / "site.json").read_text())["partitions"] == {}
    assert not (paths.folder / "partition").exists()


def test_a_rank_that_fails_fails_the_run(tmp_path: Path) -> None:
    paths, _ = run(tmp_path, site(env={"EXIT": "7"}), instances=4, code=7)
    assert (paths.state.read_text(), paths.exit_code.read_text()) == ("FAILED\n", "7\n")
    assert json.loads(paths.failure.read_text())["exit_code"] == 7
