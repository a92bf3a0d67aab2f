"""Engines that write down how they were called: what they would build in is looked at while it is there."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_ENGINE = """\
#!{python}
import json, os, sys
files = sorted(os.path.join(at, name)[2:] for at, _, names in os.walk(".") for name in names)
facts = {{"argv": sys.argv[1:], "files": files}}
facts["texts"] = {{name: open(name).read() for name in ("torch.txt", "package.txt") if os.path.exists(name)}}
with open({record!r}, "a") as stream:
    stream.write(json.dumps([os.path.basename(sys.argv[0]), facts]) + "\\n")
print({answer!r})
sys.exit({code})
"""


@dataclass(frozen=True)
class Engines:
    """Recording stand-ins on a PATH that has nothing else of the kind."""

    folder: Path

    def add(self, name: str, *, code: int = 0, answer: str = "") -> None:
        program = self.folder / name
        record = str(self.folder / "record")
        program.write_text(_ENGINE.format(python=sys.executable, record=record, code=code, answer=answer))
        program.chmod(0o755)

    def calls(self) -> list[tuple[str, dict[str, Any]]]:
        record = self.folder / "record"
        lines = record.read_text().splitlines() if record.exists() else []
        return [(name, facts) for name, facts in map(json.loads, lines)]

    def argv(self) -> list[list[str]]:
        """Return the command lines, without the questions whether an engine is there."""
        lines = [[name, *facts["argv"]] for name, facts in self.calls()]
        return [line for line in lines if line[1:2] != ["version"]]


def on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Engines:
    folder.mkdir()
    monkeypatch.setenv("PATH", os.fspath(folder))
    return Engines(folder)
