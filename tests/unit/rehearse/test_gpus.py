"""What ranks with stand-in GPUs find on their paths."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

import pytest

from trainjob.contract.errors import UserError
from trainjob.machines import process
from trainjob.rehearse import gpus


def test_a_cpu_build_of_torch_comes_before_the_users_own_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINJOB_STANDIN_TORCH", "/cache/torch-cpu")
    monkeypatch.setenv("PYTHONPATH", "/home/me/packages")
    path = gpus.environment(tmp_path, 4, "a100")["PYTHONPATH"].split(os.pathsep)
    assert path == [str(gpus.FOLDER), "/cache/torch-cpu", "/home/me/packages"]


def test_ranks_find_the_compiled_library_wherever_a_job_has_its_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
    given = gpus.environment(tmp_path, 1, None)
    monkeypatch.syspath_prepend(str(gpus.FOLDER))
    from trainjob_gpu import library

    monkeypatch.setattr(library, "digest_of_sources", lambda _torch: "digest")
    monkeypatch.setattr(library, "compile_sources", lambda _torch, targets, _say: None)
    monkeypatch.setenv("TRAINJOB_STANDIN_CACHE", given["TRAINJOB_STANDIN_CACHE"])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "the-jobs"))
    found = library.build(library.Torch(tmp_path, "2.13.0", None))
    assert {path.parent for path in found.values()} == {tmp_path / "mine/trainjob/gpu-standin/2.13.0-digest"}


def test_the_reference_page_of_gpus_is_up_to_date(write_golden: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(gpus.FOLDER))
    from trainjob_gpu import reference

    page = Path(__file__).parents[3] / "docs" / "reference" / "gpus.md"
    if write_golden:
        page.write_text(reference.page(), encoding="utf-8")
    assert page.read_text(encoding="utf-8") == reference.page()


def test_a_cuda_build_gets_a_cpu_build_of_its_version_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []

    def lines_of(_: object, folder: Path, environment: Mapping[str, str]) -> Generator[str, None, int]:
        if "gpu-standin" in environment["PYTHONPATH"]:
            return 0
        # The interpreter sees a CUDA build until a CPU build is ahead of it.
        yield '{"packages": ["torch==2.6.0+cpu", "torchvision==0.21.0+cpu"]}\n'
        return 1

    def run(arguments: Sequence[str], **_: object) -> process.Completed:
        calls.append(list(arguments))
        if "--target" in arguments:
            Path(arguments[arguments.index("--target") + 1]).mkdir()
        return process.Completed(tuple(arguments), 0, b"", "")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(process, "run", run)
    monkeypatch.setattr(process, "lines_of", lines_of)
    folder = gpus.make_ready("/venv/bin/python")
    assert folder is not None
    assert folder.name.startswith("torch-2.6.0+cpu-")
    assert gpus.make_ready("/venv/bin/python") == folder
    installs = [words for words in calls if "install" in words]
    assert [words[-2:] for words in installs] == [["torch==2.6.0+cpu", "torchvision==0.21.0+cpu"]]
    assert gpus.environment(tmp_path, 2, None, torch=folder)["PYTHONPATH"].split(os.pathsep)[1] == str(folder)


def test_without_a_cpu_build_there_are_still_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lines_of(*_: object, **__: object) -> Generator[str, None, int]:
        yield '{"packages": ["torch==2.6.0+cpu"]}\n'
        return 1

    def run(arguments: Sequence[str], **_: object) -> process.Completed:
        errors = "" if "--version" in arguments else "ERROR: No matching distribution found for torch==2.6.0+cpu\n"
        return process.Completed(tuple(arguments), 1 if errors else 0, b"", errors)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(process, "run", run)
    monkeypatch.setattr(process, "lines_of", lines_of)
    with pytest.raises(UserError) as refusal:
        gpus.make_ready("/venv/bin/python")
    assert "can't install it: ERROR: No matching distribution" in refusal.value.problem.text
    assert refusal.value.problem.cure.startswith("Rehearse with --no-gpus, on CPUs.")


def test_compiling_is_reported_as_it_proceeds_and_a_refusal_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def lines_of(*_: object, **__: object) -> Generator[str, None, int]:
        yield '{"say": "compiling"}\n'
        yield '{"say": "half of it"}\n'
        yield '{"refused": "no g++"}\n'
        return 1

    monkeypatch.setattr(process, "lines_of", lines_of)
    reported: list[str] = []
    with pytest.raises(UserError, match=r"no stand-in GPUs for /venv/bin/python: no g\+\+"):
        gpus.make_ready("/venv/bin/python", reported.append)
    assert reported == ["compiling", "half of it"]


def test_a_python_that_can_not_even_begin_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def lines_of(*_: object, **__: object) -> Generator[str, None, int]:
        yield "a line of the user's own\n"
        return 1

    monkeypatch.setattr(process, "lines_of", lines_of)
    with pytest.raises(UserError, match="exited with 1"):
        gpus.make_ready("/venv/bin/python")
