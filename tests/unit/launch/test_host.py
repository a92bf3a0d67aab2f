"""What a host must have before its ranks start: the very run directory, and the software of the others."""

from __future__ import annotations

import importlib.util
import platform
import sys
from importlib import metadata
from pathlib import Path

import pytest

from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.launch import host
from trainjob.launch.host import distributions, installed
from trainjob.records import software

TOKEN = "7.0.123"


def test_the_very_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / ".token").write_text(f"{TOKEN}\n")
    paths = RunPaths(tmp_path)
    host.refuse_another_folder(paths, TOKEN, limit_s=0)
    assert paths.token.read_text() == f"{TOKEN}\n"


@pytest.mark.parametrize("there", ["6.0.99\n", None])
def test_another_folder_of_the_same_path_is_refused(tmp_path: Path, there: str | None) -> None:
    if there:
        (tmp_path / ".token").write_text(there)
    with pytest.raises(UserError, match=f"does not see run directory {tmp_path}, or sees another one of that name"):
        host.refuse_another_folder(RunPaths(tmp_path), TOKEN, limit_s=-1)


def other_host(paths: RunPaths, attempt: int = 1, **versions: str) -> None:
    """Record a host like this one, but for `versions`."""
    software.record(paths, software.HostSoftware(attempt, 0, "n1", {**installed(), **versions}))


def test_what_this_host_has_is_recorded_without_importing_torch(tmp_path: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed in this Python")
    host.record_packages(RunPaths(tmp_path), rank=4, attempt=1, required=True)
    (recorded,) = software.recorded(RunPaths(tmp_path))
    assert (recorded.rank, recorded.attempt) == (4, 1)
    assert recorded.packages["python"] == platform.python_version()
    assert recorded.packages["torch"].startswith(tuple("123456789"))


def test_hosts_that_differ_are_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = RunPaths(tmp_path)
    other_host(paths, python="3.8.1", driver="535.104")
    host.record_packages(paths, rank=1, attempt=1, required=False)
    printed = capsys.readouterr().err
    assert (
        "WARNING: the hosts of this run have different software: driver is 535.104 on n1 and not installed" in printed
    )
    assert f"python is 3.8.1 on n1 and {platform.python_version()} on" in printed


def test_hosts_that_differ_are_refused_where_the_cluster_file_says_so(tmp_path: Path) -> None:
    other_host(RunPaths(tmp_path), torch="1.10.0")
    with pytest.raises(UserError, match=r"torch is 1\.10\.0 on n1 and .* Install the same versions everywhere"):
        host.record_packages(RunPaths(tmp_path), rank=1, attempt=1, required=True)


def test_hosts_that_agree_are_no_news(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other_host(RunPaths(tmp_path))
    host.record_packages(RunPaths(tmp_path), rank=1, attempt=1, required=True)
    assert capsys.readouterr().err == ""


def test_the_hosts_of_an_earlier_attempt_do_not_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "attempt").write_text("2\n")
    other_host(RunPaths(tmp_path), attempt=1, torch="1.10.0")
    host.record_packages(RunPaths(tmp_path), rank=1, attempt=2, required=True)
    assert capsys.readouterr().err == ""


def test_hosts_that_agree_do_not_read_each_others_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths, readings = RunPaths(tmp_path), list[RunPaths]()
    with monkeypatch.context() as patched:
        patched.setattr(software, "recorded", readings.append)
        for rank in (0, 8, 16):
            host.record_packages(paths, rank=rank, attempt=1, required=True)
    assert readings == []
    assert [one.rank for one in software.recorded(paths)] == [0, 8, 16]


def test_a_version_is_what_the_metadata_beside_a_package_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel, egg = tmp_path / "nvidia_nccl_cu12-2.20.5.dist-info", tmp_path / "horovod-0.28.1-py3.8-linux-x86_64.egg"
    for folder in (wheel, egg / "EGG-INFO", tmp_path / "torch-9.9.9.dist-info", tmp_path / "torchvision-1.0.dist-info"):
        folder.mkdir(parents=True)
    (tmp_path / "torch-9.9.9.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nVersion: 9.9.9+cpu\n\nVersion: 8\n"
    )
    (tmp_path / "numpy-1.24.4.egg-info").write_text("")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "none"), str(tmp_path), str(egg)])
    assert distributions(("torch", "numpy", "nvidia-nccl-cu12", "horovod", "poptorch")) == {
        "torch": "9.9.9+cpu",
        "numpy": "1.24.4",
        "nvidia-nccl-cu12": "2.20.5",
        "horovod": "0.28.1",
    }


def test_the_versions_here_are_those_that_the_standard_library_finds() -> None:
    names = ("numpy", "hypothesis", "tree-sitter")  # torch is not there on the newest Python
    assert distributions(names) == {name: metadata.version(name) for name in names}
