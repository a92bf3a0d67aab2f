"""Another release of Slurm: what cannot be made is refused in one line, and what was half made is not used."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from trainjob.contract.errors import UserError
from trainjob.machines import process
from trainjob.rehearse.slurm import releases, root


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the folder of the roots, which is new; whoever runs the tests may make namespaces."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(root, "refuse_without_rights", lambda: None)
    monkeypatch.setattr(root, "rights", lambda: root.Rights.ROOT)
    return tmp_path / "cache" / "trainjob" / "slurm"


@pytest.fixture
def mmdebstrap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Return what puts a stand-in with the given shell on PATH; its folder is `$root`."""

    def put(body: str) -> None:
        program = tmp_path / "bin" / "mmdebstrap"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\nfor word; do case $word in *.partial) root=$word ;; esac; done\n{body}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")

    return put


def test_an_unknown_release_is_refused() -> None:
    with pytest.raises(UserError, match=r"Slurm 19.05 is not one of .*Choose 20.11, 22.05, 24.11, 26.05, or installed"):
        releases.root_of("19.05", accounting=False)


@pytest.mark.parametrize("release", ["24.11", "26.05"])
def test_accounts_that_can_not_be_checked_are_refused_at_once(release: str) -> None:
    with pytest.raises(UserError, match=f"Slurm {release}: .*Rehearse on 22.05"):
        releases.root_of(release, accounting=True)


def test_a_machine_without_mmdebstrap_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process, "search_path", lambda: str(tmp_path))
    with pytest.raises(UserError, match="apt-get install mmdebstrap"):
        releases.root_of("24.11", accounting=False)


def test_a_full_disk_is_refused_before_anything_is_fetched(
    monkeypatch: pytest.MonkeyPatch, mmdebstrap: Callable[[str], None]
) -> None:
    mmdebstrap("exit 9")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, 0))
    with pytest.raises(UserError, match=r"takes 1500 MB .* has 0 MB left. Make room there"):
        releases.root_of("22.05", accounting=True)


def test_without_a_network_it_says_what_failed_and_leaves_nothing(
    mmdebstrap: Callable[[str], None], cache: Path
) -> None:
    mmdebstrap('mkdir "$root"; echo "E: Could not resolve a.b" >&2; exit 25')
    with pytest.raises(
        UserError, match=r"Slurm 24.11: .*E: Could not resolve a.b. Look whether .* TRAINJOB_DEBIAN_MIRROR"
    ):
        releases.root_of("24.11", accounting=False)
    assert [path.name for path in cache.iterdir()] == ["24.11.lock"]


def test_what_was_half_made_is_made_again_and_what_is_complete_is_kept(
    mmdebstrap: Callable[[str], None], cache: Path
) -> None:
    (cache / "24.11.partial").mkdir(parents=True)
    (cache / "24.11.partial" / "left").touch()
    mmdebstrap('mkdir "$root" && touch "$root/made"')
    for _ in range(2):
        folder = releases.root_of("24.11", accounting=False)
        assert [path.name for path in folder.iterdir()] == ["made"]
        mmdebstrap("exit 1")
    assert {path.name for path in cache.iterdir()} == {"24.11", "24.11.lock"}
