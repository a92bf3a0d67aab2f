from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cutting_server import Behaviour, serving
from trainjob.contract.errors import UserError
from trainjob.data.__main__ import main
from trainjob.data.download import fetch

CONTENT = bytes(range(256)) * 400
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def quiet(line: Any) -> None:
    """Say nothing."""


def test_a_file_of_this_host_stays_where_it_is(tmp_path: Path) -> None:
    source = tmp_path / "archive"
    source.write_bytes(CONTENT)
    assert fetch(str(source), tmp_path / "to", SHA256.upper(), quiet) == (source, False)
    assert not (tmp_path / "to").exists()


def test_what_a_killed_fetch_left_is_gone_on_with(tmp_path: Path) -> None:
    (tmp_path / "to.part").write_bytes(CONTENT[:1000])
    with serving(Behaviour(CONTENT)) as server:
        assert fetch(server.url, tmp_path / "to", SHA256, quiet).changed
    assert server.asked == ["bytes=1000-"]
    assert (tmp_path / "to").read_bytes() == CONTENT
    assert not (tmp_path / "to.part").exists()


def test_a_cut_after_going_on_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "to.part").write_bytes(CONTENT[:1000])
    with serving(Behaviour(CONTENT, cuts=[500])) as server:
        fetch(server.url, tmp_path / "to", "", quiet)
    assert server.asked == ["bytes=1000-", "bytes=1500-"]
    assert (tmp_path / "to").read_bytes() == CONTENT


def test_a_rest_of_another_file_is_thrown_away(tmp_path: Path) -> None:
    (tmp_path / "to.part").write_bytes(b"other" * 20)
    with serving(Behaviour(CONTENT)) as server:
        fetch(server.url, tmp_path / "to", SHA256, quiet)
    assert server.asked == ["bytes=100-", None]
    assert (tmp_path / "to").read_bytes() == CONTENT


def test_a_fetched_file_is_not_fetched_again(tmp_path: Path) -> None:
    (tmp_path / "to").write_bytes(CONTENT)
    with serving(Behaviour(CONTENT)) as server:
        assert not fetch(server.url, tmp_path / "to", SHA256, quiet).changed
    assert server.asked == []


def test_a_wrong_checksum_leaves_nothing_behind(tmp_path: Path) -> None:
    with serving(Behaviour(CONTENT)) as server, pytest.raises(UserError, match="is not the expected file"):
        fetch(server.url, tmp_path / "to", "0" * 64, quiet)
    assert list(tmp_path.iterdir()) == []


def test_the_last_line_is_json_for_the_playbooks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "digits", "--data-dir", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "there": False,
        "identity": None,
        "why": f"{tmp_path}/digits is not there",
    }
    assert main(["prepare", "digits", "--data-dir", str(tmp_path)]) == 0
    made = json.loads(capsys.readouterr().out)
    assert main(["check", "digits", "--data-dir", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["identity"] == made["identity"]
    (tmp_path / "digits/test-labels.bin").write_bytes(b"")
    assert main(["check", "digits", "--data-dir", str(tmp_path)]) == 0
    damaged = json.loads(capsys.readouterr().out)
    assert damaged["there"]
    assert damaged["identity"] is None
    assert "test-labels.bin" in damaged["why"]


def test_a_mistake_is_one_line_and_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", "nothing", "--data-dir", str(tmp_path)]) == 1
    assert "there is no data set nothing to prepare" in capsys.readouterr().err
