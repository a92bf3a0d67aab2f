"""Runs the stand-in poprun and vipu as programs, with a controller of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.programs import ran
from trainjob.rehearse import pod

# Says what an instance was told, as one line of JSON behind mpirun's tag.
TELL = "import json, os, sys; print(json.dumps([dict(os.environ), sys.argv[1:]]))"
_LINE = re.compile(r"\[1,(\d+)\]<stdout>:")


class Pod:
    """A launch host in small."""

    def __init__(self, folder: Path, *, python: str = sys.executable, mpirun: bool = False) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        pod.write_programs(self.bin, python)
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("TRAINJOB_", "OMPI_", "IPUOF_"))
        }
        self.environ = {
            **kept,
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "TRAINJOB_STANDIN_VIPU": str(folder / "vipu"),
            **({} if mpirun else {"TRAINJOB_STANDIN_MPIRUN": "none"}),
        }

    def run(self, *words: str, code: int | None = 0, **environ: str) -> subprocess.CompletedProcess[str]:
        """Return what a program printed; it has to exit with `code` unless that is None."""
        return ran(words, environ={**self.environ, **environ}, timeout_s=250, code=code)

    def poprun(self, *words: str, code: int | None = 0, **environ: str) -> subprocess.CompletedProcess[str]:
        return self.run("poprun", *words, code=code, **environ)

    def report(self, *options: str, **environ: str) -> list[dict[str, Any]]:
        """Return the environment of every instance, in order."""
        return [environment for environment, _ in self.instances(*options, arguments=(), **environ)]

    def instances(self, *options: str, arguments: tuple[str, ...] = (), **environ: str) -> list[Any]:
        ended = self.poprun(*options, sys.executable, "-c", TELL, *arguments, code=0, **environ)
        found: dict[int, str] = {}
        # Tags stand wherever a write began: what is behind them belongs together, instance by instance.
        for text, number in _pieces(ended.stdout):
            found[number] = found.get(number, "") + text
        return [json.loads(found[number]) for number in sorted(found)]

    def site(self, **values: Any) -> None:
        """Write what the controller has."""
        (self.folder / "vipu").mkdir(exist_ok=True)
        (self.folder / "vipu" / "site.json").write_text(json.dumps(values))

    def partitions(self) -> dict[str, Any]:
        path = self.folder / "vipu" / "site.json"
        found: dict[str, Any] = json.loads(path.read_text())["partitions"] if path.exists() else {}
        return found


def _pieces(output: str) -> list[tuple[str, int]]:
    parts = _LINE.split(output)
    return [(text.strip("\n"), int(number)) for number, text in zip(parts[1::2], parts[2::2], strict=True)]


def partition(size: int, **more: Any) -> dict[str, Any]:
    """Return a partition as the controller keeps it."""
    import getpass

    usual = {
        "owner": getpass.getuser(),
        "state": "PS_ACTIVE",
        "allocation": "default",
        "reconfigurable": True,
        "gcds": 1,
        "sync_type": "c2-compatible",
    }
    return {"size": size, **usual, **more}
