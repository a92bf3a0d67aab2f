"""The shell library that job scripts source. It is copied into the run directory; a script refuses any other."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path

from trainjob.contract import package


def files() -> list[Path]:
    """Return the files of the library in the order of the digest."""
    return sorted((package.folder() / "launch" / "shell").glob("*.sh"))


@cache
def digest() -> str:
    """Return the sha256 of the lines that `sha256sum -- *.sh` prints for all files; scripts check it the same way."""
    lines = "".join(f"{sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files())
    return sha256(lines.encode()).hexdigest()


def texts() -> dict[str, str]:
    """Return the text of each file by its path in a run directory."""
    return {f"code/trainjob/launch/shell/{file.name}": file.read_text(encoding="utf-8") for file in files()}
