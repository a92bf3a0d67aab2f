"""The shell library that job scripts source: it travels in the run directory, and a script refuses another."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path

from trainjob.contract import package


def files() -> list[Path]:
    """Return the files of the library, in the order in which they are digested."""
    return sorted((package.folder() / "launch" / "shell").glob("*.sh"))


@cache
def digest() -> str:
    """Return one sha256 over all files: of the lines that `sha256sum -- *.sh` prints, which is how scripts check it."""
    lines = "".join(f"{sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files())
    return sha256(lines.encode()).hexdigest()


def texts() -> dict[str, str]:
    """Return what each file holds, by its path in a run directory."""
    return {f"code/trainjob/launch/shell/{file.name}": file.read_text(encoding="utf-8") for file in files()}
