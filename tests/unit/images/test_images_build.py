"""What an engine is called with, and what lies in the folder that it builds in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from recording_engines import Engines

from trainjob.contract.errors import UserError
from trainjob.images.build import Build, build
from trainjob.images.context import KINDS, TORCH, Ingredients

ROOT = Path(__file__).resolve().parents[3]


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
    assert re.search(r"^\./package/trainjob-.*\.whl\[train\]$", facts["texts"]["package.txt"], re.M)


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
    assert (name, facts["argv"]) == ("podman", ["build", "--tag", "t:cuda", "."])
    assert facts["texts"]["torch.txt"].split("\n")[:2] == ["--index-url https://index.example/cu13", "torch==2.9.0"]
    assert "--no-index" not in facts["texts"]["package.txt"]


def test_apptainer_builds_a_file_from_the_definition(engines: Engines, tmp_path: Path) -> None:
    engines.add("apptainer")
    build(Build(Ingredients("cpu"), "apptainer", str(tmp_path / "cpu.sif"), base="our-debian:12"))
    assert engines.argv() == [
        ["apptainer", "build", "--build-arg", "BASE=our-debian:12", str(tmp_path / "cpu.sif"), "image.def"]
    ]


def test_the_image_for_ipus_has_the_runtime_and_not_the_command_line(engines: Engines) -> None:
    engines.add("docker")
    build(Build(Ingredients("ipu"), "docker", "trainjob:ipu"))
    ((_, facts),) = engines.calls()
    assert "runtime/trainjob/train/launch.py" in facts["files"]
    assert not [name for name in facts["files"] if name.startswith(("runtime/trainjob/cli", "package"))]
    assert "torch" not in facts["texts"]["torch.txt"]


def test_an_archive_is_saved_from_the_image(engines: Engines, tmp_path: Path) -> None:
    engines.add("docker")
    build(Build(Ingredients("cpu"), "docker", "trainjob:cpu", archive=tmp_path / "cpu.tar"))
    assert engines.argv()[1] == ["docker", "save", "--output", str(tmp_path / "cpu.tar"), "trainjob:cpu"]


def test_a_build_that_fails_says_so(engines: Engines) -> None:
    engines.add("docker", code=7)
    with pytest.raises(UserError, match="docker exited with 7: image trainjob:cpu is not built"):
        build(Build(Ingredients("cpu"), "docker", "trainjob:cpu"))


def test_a_password_in_the_address_of_the_index_is_refused(engines: Engines) -> None:
    asked = Ingredients("cpu", index_url="https://me:hunter2@index.example/simple")
    with pytest.raises(UserError, match="--index-url holds a user or a password") as refused:
        build(Build(asked, "docker", "trainjob:cpu"))
    assert "hunter2" not in str(refused.value)


def test_an_empty_wheelhouse_is_refused_with_what_fills_it(engines: Engines, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no \*\.whl file: .*pip download .* torch==2\.13\.0 .*'typer>=.* tqdm"):
        build(Build(Ingredients("cpu", tmp_path), "docker", "trainjob:cpu"))


def test_an_unknown_image_is_refused(engines: Engines) -> None:
    with pytest.raises(UserError, match="image 'tpu' is not one of ours: give cpu, cuda, ipu"):
        build(Build(Ingredients("tpu"), "docker", "trainjob:tpu"))


def test_the_torch_of_images_is_the_makefiles() -> None:
    assert re.search(r"^TORCH \?= (.*)$", (ROOT / "Makefile").read_text(), re.M)[1] == TORCH


@pytest.mark.parametrize("kind", KINDS)
def test_dockerfile_and_definition_name_one_base_pinned(kind: str) -> None:
    base = re.search(r"^ARG BASE=(.*)$", (ROOT / f"containers/{kind}/Dockerfile").read_text(), re.M)[1]
    assert f"    BASE={base}\n" in (ROOT / f"containers/apptainer/{kind}.def").read_text()
    assert re.search(r":[^:]*[0-9]+\.[0-9]+\.[0-9]+", base), "a tag that moves is no pin"


@pytest.mark.parametrize("name", ["{}/Dockerfile", "apptainer/{}.def"])
def test_images_for_cpus_and_gpus_differ_by_what_they_stand_on_alone(name: str) -> None:
    cpu, cuda = ((ROOT / "containers" / name.format(kind)).read_text().splitlines() for kind in ("cpu", "cuda"))
    differing = [line for line, other in zip(cpu, cuda, strict=True) if line != other]
    assert [line.split()[0] for line in differing if "BASE=" not in line and " on CPUs" not in line] == []


@pytest.mark.parametrize("kind", KINDS)
def test_no_image_runs_as_root_or_leaves_its_context_in(kind: str) -> None:
    lines = (ROOT / f"containers/{kind}/Dockerfile").read_text().splitlines()
    last_stage = lines[max(number for number, line in enumerate(lines) if line.startswith("FROM ")) :]
    assert "USER trainjob" in last_stage
    assert not [line for line in last_stage if line.startswith("COPY wheelhouse")]
