"""The copy of trainjob that goes into an image: whole, with what importlib.metadata reads."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from trainjob.contract.errors import UserError
from trainjob.images.context import copy_package


def test_it_is_the_package_as_an_installation_has_it(tmp_path: Path) -> None:
    copy_package(tmp_path / "trainjob")
    for name in (
        "cli/main.py",
        "data/digits/train-images.bin",
        "templates/jobs/local.sh.j2",
        "containers/cpu/Dockerfile",
    ):
        assert (tmp_path / "trainjob" / name).is_file()
    assert not list(tmp_path.rglob("__pycache__"))
    (found,) = metadata.distributions(path=[str(tmp_path)])
    assert (found.name, found.version) == ("trainjob", metadata.version("trainjob"))
    assert found.requires == metadata.requires("trainjob")


def test_sources_that_were_never_installed_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_there(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", not_there)
    with pytest.raises(UserError, match=r"pip install -e \."):
        copy_package(tmp_path / "trainjob")
