"""Runs and data sets lie below one folder of the user's, which XDG_DATA_HOME moves; rendered bytes don't name it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.programs import ran
from trainjob.contract.paths import expanded, home
from trainjob.contract.quoting import path
from trainjob.kinds.lookup import find
from trainjob.requests.options import JobOptions
from trainjob.requests.prepared import data_dir, prepare

OPTIONS = JobOptions("local", None, {})


@pytest.mark.parametrize("is_set", [True, False])
def test_runs_and_data_lie_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_set: bool) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "moved") if is_set else "")
    top = tmp_path / ("moved" if is_set else "home/.local/share") / "trainjob"
    assert (home(), data_dir(find("local"))) == (top, top / "data")
    assert prepare(OPTIONS).runs_dir == top / "runs"


def test_a_script_resolves_what_python_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = "$XDG_DATA_HOME/my data/$(x)"
    for moved in (str(tmp_path / "it's"), ""):
        monkeypatch.setenv("XDG_DATA_HOME", moved)
        shown = ran(["bash", "-uc", f"printf %s {path(written)}"], code=0)
        assert shown.stdout == str(expanded(written))


def test_rendered_bytes_do_not_depend_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/one")
    digest = prepare(OPTIONS).render().digest
    monkeypatch.setenv("XDG_DATA_HOME", "/other")
    assert prepare(OPTIONS).render().digest == digest
