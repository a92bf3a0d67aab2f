"""The line that adds an extra, for each way in which trainjob can have been installed."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path

import pytest

from trainjob.contract import package

WHEEL = {"url": "file:///home/me/trainjob-0.1.0-py3-none-any.whl", "archive_info": {}}
CLONE = {"url": "file:///home/me/my%20clone", "dir_info": {"editable": True}}


class Installed:
    def __init__(self, source: object) -> None:
        self._source = source

    def read_text(self, name: str) -> str | None:
        return json.dumps(self._source) if name == "direct_url.json" else None


@pytest.mark.parametrize(
    ("source", "receipt", "line"),
    [
        (WHEEL, "", "PYTHON -m pip install '/home/me/trainjob-0.1.0-py3-none-any.whl[report]'"),
        (CLONE, "", "PYTHON -m pip install -e '/home/me/my clone[report]'"),
        (WHEEL, "uv-receipt.toml", "uv tool install 'trainjob[report] @ /home/me/trainjob-0.1.0-py3-none-any.whl'"),
        (WHEEL, "pipx_metadata.json", "pipx install --force '/home/me/trainjob-0.1.0-py3-none-any.whl[report]'"),
    ],
    ids=["pip", "editable", "uv", "pipx"],
)
def test_an_extra_is_added_to_the_installation_that_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: object, receipt: str, line: str
) -> None:
    if receipt:
        (tmp_path / receipt).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "PYTHON")
    monkeypatch.setattr(metadata, "distribution", lambda _name: Installed(source))
    assert package.install_command("report") == line


def test_sources_that_were_never_installed_are_installed_from_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_name: str) -> None:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "distribution", missing)
    assert f"{package.folder().parent}[train]" in package.install_command("train")
