"""How large a made-up data set may be: compared with disk and memory before a byte is made."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainjob.contract.errors import UserError
from trainjob.data import sizes as module
from trainjob.data.prepare import prepare
from trainjob.data.sizes import Sizes, available_memory, refuse_what_does_not_fit
from trainjob.data.synthetic import MadeUp


def test_more_than_the_disk_holds_is_refused_with_the_nearest_number(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        prepare("synthetic", tmp_path, samples=99_999_999_999)
    assert "synthetic samples of shape 3x32x32 with 10 classes take 307,4" in caught.value.text
    assert f"{tmp_path}" in caught.value.text
    assert caught.value.cure.startswith("choose at most --samples ")
    assert list(tmp_path.iterdir()) == []


def test_the_number_that_is_offered_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10_000_000))
    with pytest.raises(UserError) as caught:
        refuse_what_does_not_fit(Sizes(samples=5000, held_out=100), tmp_path / "not" / "there")
    offered = int(caught.value.cure.rpartition(" ")[2])
    refuse_what_does_not_fit(Sizes(samples=offered, held_out=100), tmp_path)
    with pytest.raises(UserError):
        refuse_what_does_not_fit(Sizes(samples=offered + 1, held_out=100), tmp_path)


@pytest.mark.parametrize("classes", [10, 65536])
def test_more_than_the_memory_holds_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, classes: int) -> None:
    monkeypatch.setattr(module, "available_memory", lambda: 50_000_000)
    too_many = Sizes(samples=20_000_000 if classes == 10 else 10, shape=(1, 1, 1) if classes == 10 else (3, 32, 32))
    with pytest.raises(UserError, match=r"of memory to make, and this machine has 0\.1 GB free"):
        refuse_what_does_not_fit(too_many._replace(classes=classes), tmp_path)
    with pytest.raises(UserError, match="GB of memory, and this machine has"):
        MadeUp(Sizes(samples=50_000))


def test_available_memory_is_this_machines() -> None:
    assert 1 << 24 < available_memory() < 1 << 50


def test_a_refusal_names_the_users_folder_and_not_the_one_being_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"the disk of {tmp_path} has") as refused:
        refuse_what_does_not_fit(Sizes(samples=10**11), tmp_path / ".synthetic.host.new.1.part")
    assert ".part" not in str(refused.value)
