"""Placeholders for a training script that this machine lacks: a program that waits, in folders only the cluster has."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from batchfiles.bash.values import HOLE
from batchfiles.slurm.script import BatchScript

_WAITS = "import time\n\ntime.sleep(8)  # until all ranks have been seen\n"
_PROGRAM = re.compile(r"(?:^|[\s'\"])([\w./-]+\.py)(?=$|[\s'\"])")
_WRAPPER = re.compile(r"(?:^|exec[\s\\]+)([\w./-]+/(?:[\w.-]+\.sh|bin/python[\w.]*))(?=\s)")
_LARGEST_BYTES = 1_000_000
# A script of the shell that ranks run (./run.sh, bash run.sh, /code/run.sh), not one that a shell sources.
_SHELL = re.compile(
    r"(?:^|(?<!\bsource)(?<!\s\.)(?<!^\.)[\s;&])(?:exec\s+)?(?:(?:ba)?sh\s+)?((?:\.{0,2}/)?[\w./-]*\w\.(?:sh|bash))(?=\s|$)"
)
# A test of a path without which many files end.
_NEEDED = re.compile(r"!\s*-[defrs]\s+\"?\$\{?(\w+)|-[defrs]\s+\"?\$\{?(\w+)\}?\"?\s*\]{1,2}\s*\|\|")
_OWN = re.compile(r"(?:.*\bexec\s+)?([\w./-]+)(?=\s|$)", re.DOTALL)
_MODULE = re.compile(r"(?:^|\s)-m\s+([\w.]+)")


class SubmissionFolder(NamedTuple):
    """The folder to submit in, the replacements for folders of the cluster, and a folder for PATH."""

    folder: Path
    maps: dict[str, Path]
    programs: Path


def make_placeholders(
    script: BatchScript, words: Sequence[str], here: Path, place: Path, python: str, arguments: Sequence[str] = ()
) -> SubmissionFolder | None:
    """Make placeholders in `place` if the program in `words` is missing `here`; return None if it exists or is unknown.

    Paths among the batch file's `arguments`, and those without which it ends, are made as well.
    """
    text = shlex.join(words) if words[:2] != ["bash", "-c"] else words[-1]
    modules = [name for name in _MODULE.findall(text) if not name.startswith(("torch.", "accelerate."))]
    found = _PROGRAM.search(text)
    program = found[1] if found is not None else f"{modules[0].replace('.', '/')}.py" if modules else None
    script_of_shell = _SHELL.search(text) if program is None else None
    if script_of_shell is not None and not (here / script_of_shell[1]).exists():
        return _with_shell_script(script, script_of_shell[1], place, python)
    own = _OWN.match(text) if program is None else None
    name = own[1] if own is not None else ""
    if (here / program).exists() if program is not None else not name or _is_found(name, here):
        return None
    made = _submission_folder(script, place)
    waiting = _put(made, place, program or name) if program or "/" in name else made.programs / name
    waiting.write_text(f"#!{python}\n{_WAITS}")
    waiting.chmod(0o755)
    wrapper = _WRAPPER.search(text)
    for path in {words[0], wrapper[1] if wrapper else ""}:
        if "/" in path and not (here / path).exists() and path not in (name, program):
            starter = _put(made, place, path)
            starter.write_text(
                f'#!/bin/sh\ncase $1 in -* | *.py) set -- {shlex.quote(python)} "$@" ;; esac\nexec "$@"\n'
            )
            starter.chmod(0o755)
    needed = {name for names in _NEEDED.findall("\n".join(script.lines)) for name in names}
    paths = [one.value.text for one in script.assignments if one.name in needed and one.value.known]
    for argument in (*arguments, *paths):
        is_path = re.fullmatch(r"[\w.][\w./-]*/[\w.-]+|[\w-]+\.\w{2,5}", argument)
        if is_path or (re.match(r"[\w.]", argument) and (here / argument).exists()):
            _copy(here, _put(made, place, argument), argument)
    called = {os.path.relpath(one.source, here) for one in script.commands if one.source}
    sourced = [one.words[1] for one in script.named("source", ".") if len(one.words) > 1]
    called |= {word.text for word in sourced if word.value.known and not word.text.endswith("activate")}
    for named in sorted(called):
        if re.match(r"[\w.]", named):
            _copy(here, _put(made, place, named), named)
    return made


def _is_found(name: str, here: Path) -> bool:
    """Return whether this machine has a program: below `here`, or on PATH."""
    return (here / name).exists() if "/" in name else shutil.which(name) is not None


def _submission_folder(script: BatchScript, place: Path) -> SubmissionFolder:
    """Return the folder of the submission, to which the file moves, with those into which it writes."""
    made = SubmissionFolder(place / "project", {}, place / "programs")
    made.folder.mkdir()
    made.programs.mkdir()
    moved = [one.words[1].value.written for one in script.named("cd") if len(one.words) > 1]
    moved = [re.sub(r"\A(?:\$HOME|~)(?=/)", str(Path.home()), target) for target in moved]
    for target in (script.header.value("chdir") or "", *(one for one in moved if not re.search(rf"[${HOLE}]", one))):
        if target.startswith("/") and not Path(target).exists():
            made.maps[target.rstrip("/")] = made.folder
        elif re.match(r"\w", target):
            _put(made, place, f"{target}/placeholder").touch()  # no copy of a project has an empty folder
    written = {path.text.rpartition("/")[0] for one in script.commands for _, path in one.writes_to}
    for written_below in sorted(one for one in written if re.match(r"\w", one) and HOLE not in one):
        _put(made, place, f"{written_below}/placeholder").touch()
    return made


def _with_shell_script(script: BatchScript, name: str, place: Path, python: str) -> SubmissionFolder:
    """Return placeholders with a script of the shell that waits."""
    made = _submission_folder(script, place)
    waits = made.programs / "waits.py"
    waits.write_text(_WAITS)
    target = _put(made, place, name)
    target.write_text(f'#!/bin/sh\nexec {shlex.quote(python)} {shlex.quote(str(waits))} "$@"\n')
    target.chmod(0o755)
    return made


def _copy(here: Path, target: Path, name: str) -> None:
    """Make `target`, which the batch file names, as a copy of what is `here`, or empty if that is a data set."""
    source = here / name
    if source.is_dir() or not (source.exists() or target.suffix):
        target.mkdir(exist_ok=True)
    elif source.is_file() and 0 < source.stat().st_size <= _LARGEST_BYTES:  # the kernel's have no size
        shutil.copy(source, target)
    else:
        target.touch()


def _put(made: SubmissionFolder, place: Path, path: str) -> Path:
    """Return the path of the placeholder for a file of the cluster, and make its folder."""
    base = next((base for base in made.maps if path.startswith(f"{base}/")), None)
    if base is not None:
        target = made.maps[base] / path.removeprefix(f"{base}/")
    elif re.fullmatch(r"/[^/]*", path):  # nothing takes the place of the root
        target = place / "outside" / Path(path).name
    elif path.startswith("/"):
        parent = str(Path(path).parent)
        target = made.maps.setdefault(parent, place / f"folder-{len(made.maps)}") / Path(path).name
    else:
        target = made.folder / path
    if not Path(os.path.normpath(target)).is_relative_to(place):  # ../../..: nothing is written there
        target = place / "outside" / target.name
    target.parent.mkdir(parents=True, exist_ok=True)
    return target
