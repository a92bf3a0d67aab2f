"""What an engine is called with, and what lies in the folder that it builds in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.recording_engines import Engines
from trainjob.contract.errors import UserError
from trainjob.images.context import KINDS, TORCH, Ingredients
from trainjob.images.engines import Build, build


def test_a_password_in_the_address_of_the_index_is_refused(engines: Engines) -> None:
    asked = Ingredients("cpu", index_url="https://me:hunter2@index.example/simple")
    with pytest.raises(UserError, match="--index-url holds a user name or a password") as refused:
        build(Build(asked, "docker", "trainjob:cpu"))
    assert "hunter2" not in str(refused.value)


def test_an_empty_wheelhouse_is_refused_with_what_fills_it(engines: Engines, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no \*\.whl file: .*pip download .* torch==2\.13\.0 .*'typer<.* tqdm"):
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
