"""Runs programs as tests do: without input, and for what they print."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

TRAINJOB = str(Path(sys.executable).parent / "trainjob")


def ran(
    words: Sequence[str | Path],
    *,
    folder: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    code: int | None = None,
) -> subprocess.CompletedProcess[str]:
    """Return what a program printed; it has to exit with `code`, whatever that is when None."""
    ended = subprocess.run(
        words,
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert code in (None, ended.returncode), (words, ended.returncode, ended.stdout, ended.stderr)
    return ended


def bare_python(path: Path) -> Path:
    """Write an interpreter without any package, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    path.chmod(0o755)
    return path
