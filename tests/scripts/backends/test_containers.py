"""What is seen before a run goes into containers, which image it is recorded with, and what is removed after it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.recording_engines import Engines
from tests.support.records import record
from trainjob.backends import containers
from trainjob.backends.base import NotSubmittedError
from trainjob.backends.project import find
from trainjob.check.checks import problems
from trainjob.check.context import Context
from trainjob.cluster.job import Job
from trainjob.contract.paths import RunPaths
from trainjob.kinds.table import cluster_of
from trainjob.machines.access import HERE
from trainjob.planning.build import plan
from trainjob.records.job import ClusterRecord, RequestRecord
from trainjob.render.request import Request

DIGEST = "registry.example/torch@sha256:" + "1" * 64
TOOLS = {
    name: shutil.which(name)
    for name in ("env", "bash", "dirname", "stat", "df", "id", "mktemp", "rm", "cat", "tail", "awk")
}
ID = "sha256:" + "2" * 64


def run_folder(folder: Path, **container: str) -> RunPaths:
    cluster: dict[str, Any] = {"kind": "local", "container": container}
    request = RequestRecord(ClusterRecord("local", cluster), {})
    (folder / "job.json").write_text(record(request=request).to_json())
    return RunPaths(folder)


def test_the_registrys_digest_is_recorded(engines: Engines, tmp_path: Path) -> None:
    engines.add("podman", answer=f'["{DIGEST}","other@sha256:3"]{ID}')
    paths = run_folder(tmp_path, runtime="podman", image="torch:2")
    assert containers.image_digest(paths, None) == DIGEST


@pytest.mark.parametrize("answer", [f"[]{ID}", f"null{ID}", "[]" + "2" * 64])
def test_an_image_that_is_only_here_is_recorded_by_its_id(answer: str, engines: Engines, tmp_path: Path) -> None:
    engines.add("docker", answer=answer)
    assert containers.image_digest(run_folder(tmp_path, runtime="docker", image="torch:2"), None) == ID


def test_an_image_that_went_away_stops_the_hand_over(engines: Engines, tmp_path: Path) -> None:
    engines.add("docker", code=1)
    with pytest.raises(NotSubmittedError, match="image inspect"):
        containers.image_digest(run_folder(tmp_path, runtime="docker", image="torch:2"), None)


def test_a_run_without_containers_asks_no_engine(engines: Engines, tmp_path: Path) -> None:
    engines.add("docker")
    assert containers.image_digest(run_folder(tmp_path, runtime="none"), None) is None
    containers.remove(run_folder(tmp_path, runtime="none"), None)
    assert engines.calls() == []


def test_what_is_left_of_a_run_is_found_by_its_label_and_removed(engines: Engines, tmp_path: Path) -> None:
    engines.add("docker", answer="aaa\nbbb")
    containers.remove(run_folder(tmp_path, runtime="docker", image="torch:2"), None)
    listing, removing = engines.argv()
    assert listing[-1] == f"label=trainjob.run={tmp_path}"
    assert removing == ["docker", "rm", "--force", "aaa", "bbb"]


def test_an_engine_that_is_gone_or_does_not_answer_has_nothing_left(engines: Engines, tmp_path: Path) -> None:
    paths = run_folder(tmp_path, runtime="docker", image="torch:2")
    containers.remove(paths, None)
    assert engines.calls() == []
    engines.add("docker", code=1, answer="aaa")
    containers.remove(paths, None)
    assert [words[:2] for words in engines.argv()] == [["docker", "ps"]]


def found(tmp_path: Path, runtime: str) -> list[str]:
    container = {"runtime": runtime, "image": "torch:2"}
    cluster = cluster_of({"kind": "local", "container": container, "python": "/opt/conda/bin/python"})
    asked = Request(cluster, "cluster file here.yaml", Job(), {}, plan("here", cluster, Job()))
    return [one.code for one in problems(Context(asked, find(tmp_path), None, HERE))]


def test_what_is_wrong_with_engine_or_image_is_found_beforehand(engines: Engines, tmp_path: Path) -> None:
    add_shell(engines)
    assert found(tmp_path, "podman") == ["engine"]
    engines.add("podman", code=1)
    assert found(tmp_path, "podman") == ["image"]


def test_the_images_own_interpreter_is_looked_at(engines: Engines, tmp_path: Path) -> None:
    add_shell(engines)
    engines.add("podman", answer="python 3.11.4\ntorch 2.3.0\ncomplete yes")
    assert found(tmp_path, "podman") == []
    asked = engines.argv()[-1]
    assert "python=/opt/conda/bin/python" in asked
    assert asked[asked.index("--pull") + 1] == "never"


def test_an_image_without_torch(engines: Engines, tmp_path: Path) -> None:
    add_shell(engines)
    engines.add("podman", answer="python 3.11.4\ncomplete yes")
    assert found(tmp_path, "podman") == ["torch"]
    engines.add("podman", answer="interpreter no\ncomplete yes")
    assert found(tmp_path, "podman") == ["interpreter"]


def add_shell(engines: Engines) -> None:
    """Put on PATH what the probe of this machine itself is started with."""
    for name, program in TOOLS.items():
        (engines.folder / name).symlink_to(program or "")
