"""What an engine is called with, and what lies in the folder that it builds in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.recording_engines import Engines
from trainjob.contract.errors import UserError
from trainjob.images.context import TORCH, Ingredients
from trainjob.images.engines import Build, build


@pytest.fixture
def wheelhouse(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    (folder / "torch-2.13.0-cp311-cp311-linux_x86_64.whl").write_bytes(b"torch")
    (folder / ".netrc").write_text("machine index password hunter2")
    return folder


def test_docker_builds_in_a_context_of_ours(engines: Engines, wheelhouse: Path) -> None:
    engines.add("docker")
    build(Build(Ingredients("cpu", wheelhouse), "docker", "trainjob:cpu", base="our-debian:12", network="none"))
    ((_, facts),) = engines.calls()
    assert facts["argv"] == [
        *("build", "--tag", "trainjob:cpu", "--build-arg", "BASE=our-debian:12", "--network", "none", "."),
    ]
    assert facts["texts"]["torch.txt"].split("\n")[:3] == ["--no-index", "--find-links wheelhouse", TORCH]
    assert facts["texts"]["package.txt"].split("\n")[:2] == ["--no-index", "--find-links wheelhouse"]
    assert re.search("^typer<", facts["texts"]["package.txt"], re.M)
    assert re.search("^torch>=", facts["texts"]["package.txt"], re.M)
    assert "matplotlib" not in facts["texts"]["package.txt"]
    assert {"package/trainjob/cli/main.py", "package/trainjob/templates/jobs/local.sh.j2"} <= {*facts["files"]}


def test_only_what_is_ours_and_wheels_go_into_the_context(engines: Engines, wheelhouse: Path) -> None:
    engines.add("docker")
    build(Build(Ingredients("cpu", wheelhouse), "docker", "trainjob:cpu"))
    files = engines.calls()[0][1]["files"]
    assert {name for name in files if not name.startswith(("steps/", "package/"))} == {
        *("Dockerfile", "image.def", "torch.txt", "package.txt"),
        *("wheelhouse/.keep", "wheelhouse/torch-2.13.0-cp311-cp311-linux_x86_64.whl"),
    }


def test_without_a_wheelhouse_pip_asks_its_index(engines: Engines) -> None:
    engines.add("podman")
    build(Build(Ingredients("cuda", torch="torch==2.9.0", index_url="https://index.example/cu13"), "podman", "t:cuda"))
    ((name, facts),) = engines.calls()
    assert (name, facts["argv"]) == ("podman", ["build", "--format", "docker", "--tag", "t:cuda", "."])
    assert facts["texts"]["torch.txt"].split("\n")[:2] == ["--index-url https://index.example/cu13", "torch==2.9.0"]
    assert "--no-index" not in facts["texts"]["package.txt"]


def test_apptainer_builds_a_file_from_the_definition(engines: Engines, tmp_path: Path) -> None:
    engines.add("apptainer")
    build(Build(Ingredients("cpu"), "apptainer", str(tmp_path / "cpu.sif"), base="our-debian:12"))
    assert engines.argv() == [
        ["apptainer", "build", "--build-arg", "BASE=our-debian:12", str(tmp_path / "cpu.sif"), "image.def"]
    ]


def test_apptainer_builds_from_an_image_on_this_machine(engines: Engines, tmp_path: Path) -> None:
    engines.add("apptainer")
    base = tmp_path / "base.sif"
    base.touch()
    build(Build(Ingredients("cpu"), "apptainer", str(tmp_path / "cpu.sif"), base=str(base)))
    local = ["--build-arg", "BOOTSTRAP=localimage", "--build-arg", f"BASE={base}"]
    assert engines.argv() == [["apptainer", "build", *local, str(tmp_path / "cpu.sif"), "image.def"]]


def test_the_image_for_ipus_has_the_runtime_and_not_the_command_line(engines: Engines) -> None:
    engines.add("docker")
    build(Build(Ingredients("ipu"), "docker", "trainjob:ipu"))
    ((_, facts),) = engines.calls()
    assert "runtime/trainjob/launch/main.py" in facts["files"]
    assert not [name for name in facts["files"] if name.startswith(("runtime/trainjob/cli", "package"))]
    assert "torch" not in facts["texts"]["torch.txt"]


def test_an_archive_is_saved_from_the_image(engines: Engines, tmp_path: Path) -> None:
    engines.add("docker")
    build(Build(Ingredients("cpu"), "docker", "trainjob:cpu", archive=tmp_path / "cpu.tar"))
    assert engines.argv()[1] == ["docker", "save", "--output", str(tmp_path / "cpu.tar"), "trainjob:cpu"]


def test_a_build_that_fails_says_so(engines: Engines) -> None:
    engines.add("docker", code=7)
    with pytest.raises(UserError, match="docker exited with 7, so image trainjob:cpu is not built"):
        build(Build(Ingredients("cpu"), "docker", "trainjob:cpu"))
