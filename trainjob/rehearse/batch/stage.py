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
_WRAPPER = re.compile(r"(?:^|exec\s+)([\w./-]+/[\w.-]+\.sh)(?=\s)")
_MODULE = re.compile(r"(?:^|\s)-m\s+([\w.]+)")


class Stage(NamedTuple):
    """The folder to submit in, and the folders of the cluster that others stand in for."""

    folder: Path
    maps: dict[str, Path]


def stage(
    script: Script, words: Sequence[str], here: Path, place: Path, python: str, arguments: Sequence[str] = ()
) -> Stage | None:
    """Return a stage in `place` where the program that `words` start is not `here`; None if it is, or is not known.

    Paths among the batch file's `arguments` are there, too: many files look whether they are.
    """
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
    wrapper = _WRAPPER.search(text)
    for path, starts in ((words[0], shlex.quote(python)), (wrapper[1] if wrapper else "", "")):
        if "/" in path and not (here / path).exists():
            starter = _put(made, place, path)
            starter.write_text(f'#!/bin/sh\nexec {starts} "$@"\n')
            starter.chmod(0o755)
    for argument in arguments:
        if re.fullmatch(r"[\w.][\w./-]*/[\w.-]+|[\w-]+\.\w{2,5}", argument) and not (here / argument).exists():
            given = _put(made, place, argument)
            given.touch() if given.suffix else given.mkdir()
    for sourced in script.named("source", "."):
        named = sourced.words[1].text if len(sourced.words) > 1 and sourced.words[1].value.known else ""
        if re.match(r"[\w.]", named) and not named.endswith("activate") and not (here / named).exists():
            _put(made, place, named).touch()
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
