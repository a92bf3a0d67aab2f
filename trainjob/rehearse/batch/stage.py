"""What stands in for a training that is not here: a program that only waits, in folders that only the cluster has."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from trainjob.scripts.script import Script

_WAITS = "import time\n\ntime.sleep(8)  # until all ranks have been seen\n"
_PROGRAM = re.compile(r"(?:^|[\s'\"])([\w./-]+\.py)(?=$|[\s'\"])")
_MODULE = re.compile(r"(?:^|\s)-m\s+([\w.]+)")


class Stage(NamedTuple):
    """The folder to submit in, and the folders of the cluster that others stand in for."""

    folder: Path
    maps: dict[str, Path]


def stage(script: Script, words: Sequence[str], here: Path, place: Path, python: str) -> Stage | None:
    """Return a stage in `place` where the program that `words` start is not `here`; None if it is, or is not known."""
    text = shlex.join(words) if words[:2] != ["bash", "-c"] else words[-1]
    modules = [name for name in _MODULE.findall(text) if not name.startswith(("torch.", "accelerate."))]
    found = _PROGRAM.search(text)
    program = found[1] if found is not None else f"{modules[0].replace('.', '/')}.py" if modules else None
    if program is None or (here / program).exists():
        return None
    made = Stage(place / "project", {})
    made.folder.mkdir()
    moved = (one.words[1].text for one in script.named("cd") if len(one.words) > 1 and one.words[1].value.known)
    for target in moved:
        if target.startswith("/") and not Path(target).exists():
            made.maps[target.rstrip("/")] = made.folder
    _put(made, place, program).write_text(_WAITS)
    if "/" in words[0] and not (here / words[0]).exists():
        interpreter = _put(made, place, words[0])
        interpreter.write_text(f'#!/bin/sh\nexec {shlex.quote(python)} "$@"\n')
        interpreter.chmod(0o755)
    for name in ("output", "error"):
        log = (script.header.value(name) or "").replace("%x", script.header.value("job-name") or script.path.name)
        if "/" in log and not Path(log).parent.exists():
            _put(made, place, log)
    return made


def _put(made: Stage, place: Path, path: str) -> Path:
    """Return where a file of the cluster lies on the stage, in a folder that exists."""
    base = next((base for base in made.maps if path.startswith(f"{base}/")), None)
    if base is not None:
        target = made.maps[base] / path.removeprefix(f"{base}/")
    elif path.startswith("/"):
        parent = str(Path(path).parent)
        target = made.maps.setdefault(parent, place / f"folder-{len(made.maps)}") / Path(path).name
    else:
        target = made.folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    return target
