"""The built wheel, in a virtualenv that holds nothing else, plans, renders and diagnoses."""

from __future__ import annotations

import hashlib
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.programs import ran


def run(*arguments: str | Path, folder: Path) -> str:
    ended = ran([str(word) for word in arguments], folder=folder, code=0)
    return ended.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, needs_registry: None) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, ROOT, folder=folder)
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", folder=folder)
    (wheel,) = folder.glob("trainjob-*.whl")
    into = ("--python", folder / "venv/bin/python", "install", "--quiet", "--no-compile")
    run(sys.executable, "-m", "pip", *into, wheel, folder=folder)
    return folder / "venv/bin/trainjob"


@pytest.mark.timeout(300)
def test_the_wheel_plans(installed: Path, tmp_path: Path) -> None:
    shown = run(installed, "plan", "--cluster", "pod64", "--instances", "8", folder=tmp_path)
    assert "64 = 8 instances × 8" in shown


@pytest.mark.timeout(300)
def test_the_wheel_renders_what_the_checkout_renders(installed: Path, tmp_path: Path) -> None:
    from_wheel = run(installed, "render", "--instances", "2", folder=tmp_path)
    here = run(Path(sys.executable).parent / "trainjob", "render", "--instances", "2", folder=tmp_path)
    assert from_wheel == here


@pytest.mark.timeout(300)
def test_the_wheel_carries_the_digits_and_the_catalog(installed: Path, tmp_path: Path) -> None:
    assert "train 1,437" in run(installed, "data", "list", folder=tmp_path)
    assert "pod256" in run(installed, "cluster", "list", folder=tmp_path)


@pytest.mark.timeout(300)
def test_the_wheel_makes_the_same_image_as_the_checkout(installed: Path, tmp_path: Path) -> None:
    make = "import sys; from pathlib import Path; from trainjob.images.context import copy_package as copy; "
    digests: list[dict[str, str]] = []
    for name, python in (("installed", installed.parent / "python"), ("checkout", Path(sys.executable))):
        run(python, "-c", make + "copy(Path(sys.argv[1]))", tmp_path / name / "trainjob", folder=tmp_path)
        files = [path for path in (tmp_path / name).rglob("*") if path.is_file()]
        # Not the bytes: to show how megabytes differ takes minutes.
        digest = {
            str(path.relative_to(tmp_path / name)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files
        }
        digests.append(digest)
    assert len(digests[0]) > 500
    assert digests[0] == digests[1]


@pytest.mark.timeout(300)
def test_the_wheel_diagnoses_batch_files_and_leaves_the_simulation_out(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "train.sbatch").write_text("#!/bin/bash\n#SBATCH --time=1:00:00\nset -e\nsrun python train.py\n")
    assert "train.sbatch" in run(installed, "doctor", "train.sbatch", folder=tmp_path)
    (wheel,) = installed.parents[2].glob("trainjob-*.whl")
    top = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert sorted(name for name in top if not name.endswith(".dist-info")) == ["batchfiles", "trainjob"]
    assert "trainjob-simulate" not in {path.name for path in installed.parent.iterdir()}
