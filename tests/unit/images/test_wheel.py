"""Our own wheel: whole, installable, and the same bytes for the same content."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from trainjob.contract.errors import UserError
from trainjob.images.wheel import write_wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_wheel(tmp_path_factory.mktemp("wheel"))


def test_it_has_the_package_and_the_folders_beside_it(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for name in (
        "cli/main.py",
        "data/digits/train-images.bin",
        "templates/jobs/local.sh.j2",
        "containers/cpu/Dockerfile",
    ):
        assert f"trainjob/{name}" in names
    assert not [name for name in names if "__pycache__" in name]


def test_it_says_what_trainjob_needs(wheel: Path) -> None:
    (name,) = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("/METADATA")]
    text = zipfile.ZipFile(wheel).read(name).decode()
    assert "Requires-Dist: click" in text
    assert "torch>=1.10; extra == 'train'" in text


def test_every_member_stands_in_its_record(wheel: Path) -> None:
    members = zipfile.ZipFile(wheel)
    (record,) = [name for name in members.namelist() if name.endswith("/RECORD")]
    rows = {name: digest for name, digest, _ in csv.reader(io.StringIO(members.read(record).decode()))}
    assert set(rows) == set(members.namelist())
    for name in set(rows) - {record}:
        found = base64.urlsafe_b64encode(hashlib.sha256(members.read(name)).digest()).rstrip(b"=").decode()
        assert rows[name] == f"sha256={found}"


def test_the_same_content_gives_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    assert write_wheel(tmp_path).read_bytes() == wheel.read_bytes()


def test_sources_that_were_never_installed_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_there(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", not_there)
    with pytest.raises(UserError, match=r"pip install -e \."):
        write_wheel(tmp_path)
