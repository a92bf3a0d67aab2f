"""What ranks on another machine see of a command's folder."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trainjob.machines import process
from trainjob.records.submission import Remote
from trainjob.requests import workbench


def test_ranks_elsewhere_see_a_file_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    seen: list[list[str]] = []

    def run(words: list[str], stdin: bytes = b"") -> None:
        process.run(words, stdin=stdin)
        seen.append([one.name for one in sorted(there.iterdir())])

    for folder in (here, there):
        folder.mkdir()
    monkeypatch.setattr(workbench, "machine_of", lambda _remote: SimpleNamespace(run=run))
    bench = workbench.Workbench(cast(Any, None), here, remote=Remote("far", None, str(there)))
    (here / "wait-1.json").write_text("{}")
    bench.publish("wait-1.json")
    assert seen == [["wait-1.json.part"], ["wait-1.json"]]
    assert (there / "wait-1.json").read_text() == "{}"
    (here / "wait-1.json").unlink()
    bench.publish("wait-1.json")
    assert seen[-1] == []
