"""What ranks with stand-in GPUs find on their paths."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from trainjob.machines import process
from trainjob.rehearse import gpus


def test_a_cpu_build_of_torch_comes_before_the_users_own_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINJOB_STANDIN_TORCH", "/cache/torch-cpu")
    monkeypatch.setenv("PYTHONPATH", "/home/me/packages")
    path = gpus.environment(tmp_path, 4, "a100")["PYTHONPATH"].split(os.pathsep)
    assert path == [str(gpus.FOLDER), "/cache/torch-cpu", "/home/me/packages"]


def test_the_reference_page_of_gpus_is_up_to_date(write_golden: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(gpus.FOLDER))
    from trainjob_gpu import reference

    page = Path(__file__).parents[3] / "docs" / "reference" / "gpus.md"
    if write_golden:
        page.write_text(reference.page(), encoding="utf-8")
    assert page.read_text(encoding="utf-8") == reference.page()


def test_a_cuda_build_gets_a_cpu_build_of_its_version_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []

    def run(arguments: Sequence[str], environment: Mapping[str, str] | None = None, **_: object) -> process.Completed:
        calls.append(list(arguments))
        if "trainjob_gpu" in arguments:  # the interpreter sees a CUDA build until a CPU build is ahead of it
            sees_cpu_build = "gpu-standin" in (environment or {})["PYTHONPATH"]
            code, output = (0, b"") if sees_cpu_build else (3, b"torch==2.6.0+cpu torchvision==0.21.0+cpu\n")
            return process.Completed(tuple(arguments), code, output, "")
        if "--target" in arguments:
            Path(arguments[arguments.index("--target") + 1]).mkdir()
        return process.Completed(tuple(arguments), 0, b"", "")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(process, "run", run)
    folder = gpus.make_ready("/venv/bin/python")
    assert folder is not None
    assert folder.name.startswith("torch-2.6.0+cpu-")
    assert gpus.make_ready("/venv/bin/python") == folder
    installs = [words for words in calls if "install" in words]
    assert [words[-2:] for words in installs] == [["torch==2.6.0+cpu", "torchvision==0.21.0+cpu"]]
    assert gpus.environment(tmp_path, 2, None, torch=folder)["PYTHONPATH"].split(os.pathsep)[1] == str(folder)
