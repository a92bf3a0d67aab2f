"""The probe of `trainjob cluster accept` knows that it is in a container by what each engine leaves there."""

from __future__ import annotations

import os.path
from collections.abc import Callable

import pytest

from trainjob.train.measure import probe


def is_contained(capsys: pytest.CaptureFixture[str]) -> bool:
    probe.look()
    return '"in_container": true' in capsys.readouterr().out


@pytest.fixture(autouse=True)
def leave(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Leave one of the engines' files, and no other."""
    exists = os.path.exists
    signs = set(probe.CONTAINER_FILES)
    left: set[str] = set()
    monkeypatch.setattr(os.path, "exists", lambda path: path in left or (path not in signs and exists(path)))
    return left.add


# Enroot and its Pyxis leave the lock of the container's root, and no variable.
@pytest.mark.parametrize("path", ["/.dockerenv", "/run/.containerenv", "/.singularity.d", "/.lock"])
def test_by_a_file(path: str, leave: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    assert not is_contained(capsys)
    leave(path)
    assert is_contained(capsys)


# Apptainer starts folders without /.singularity.d, too.
@pytest.mark.parametrize("name", ["APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "SHIFTER_RUNTIME"])
def test_by_a_variable(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(name, "/images/torch")
    assert is_contained(capsys)
