"""The home of a user: HOME where it is one, else the system's list of users, else an error with a cure."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from trainjob.contract import paths
from trainjob.contract.errors import UserError
from trainjob.contract.paths import with_home

ME = pwd.getpwuid(os.getuid()) if os.getuid() in {one.pw_uid for one in pwd.getpwall()} else None


def test_home_counts_where_it_is_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    assert with_home("~/a/b") == Path("/somewhere/a/b")
    assert with_home("~") == Path("/somewhere")
    assert [str(with_home(one)) for one in ("a/~", "/~/x", "", "x~")] == ["a/~", "/~/x", ".", "x~"]


@pytest.mark.parametrize("value", ["", "relative", None])
@pytest.mark.skipif(ME is None, reason="this user is in no list of users")
def test_a_home_that_is_none_is_looked_up(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ME is not None
    if value is None:
        monkeypatch.delenv("HOME")
    else:
        monkeypatch.setenv("HOME", value)
    assert with_home("~/a") == Path(ME.pw_dir, "a")
    assert with_home(f"~{ME.pw_name}/a") == Path(ME.pw_dir, "a")


@pytest.mark.parametrize("value", ["", None])
def test_a_user_without_any_gets_an_error(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 2_000_000_000)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    if value is None:
        monkeypatch.delenv("HOME")
    else:
        monkeypatch.setenv("HOME", value)
    no_home = r"user 2000000000 has no home: .* set HOME"
    with pytest.raises(UserError, match=no_home):
        with_home("~/a")
    with pytest.raises(UserError, match=no_home):
        paths.home()
    with pytest.raises(UserError, match="there is no user nobody-here"):
        with_home("~nobody-here/x")
