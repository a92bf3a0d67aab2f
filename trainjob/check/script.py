"""The user's own Python script: which one a command runs, and the questions about it to its interpreter."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainjob.contract import package

if TYPE_CHECKING:
    from trainjob.backends.project import Project, Selection
    from trainjob.render.request import Request

_REPORT = package.program(__file__, "script_report.py")
_PYTHON = re.compile(r"python[0-9.]*")
# They bring an interpreter of their own.
_BRING_PYTHON = ("uv", "poetry", "pixi", "conda", "mamba", "micromamba", "hatch", "pipenv", "rye")


@dataclass(frozen=True)
class Script:
    """The script that a command runs: its path in the project, its words, and the first folder that it imports from."""

    path: str
    words: tuple[str, ...] | None  # None: a sweep fills them in
    imports_from: str
    program: str  # the interpreter, or a launcher whose first line names it

    def questions(self, *, imports: bool) -> str:
        """Return the text that the report takes."""
        asked = {"script": self.path, "words": self.words, "path": self.imports_from, "imports": imports}
        return json.dumps(asked)


def script_of(request: Request, project: Project, selection: Selection | None) -> Script | None:
    """Return the Python script of the job's command; None without one, and for one that is not copied into the run."""
    command, copied = tuple(request.job.command or ()), frozenset(selection.files if selection else ())

    def words_from(first: int) -> tuple[str, ...] | None:
        return None if request.job.sweep else command[first:]

    pythons = [word for word in command if _PYTHON.fullmatch(os.path.basename(word))]
    program = pythons[0] if pythons else command[0] if command else ""
    if command[1:2] == ("-m",) and pythons:
        name = command[2].replace(".", "/") if len(command) > 2 else ""
        for path in (f"{name}.py", f"{name}/__main__.py"):
            found = os.path.normpath(os.path.join(project.start, path))
            if found in copied:
                return Script(found, words_from(3), project.start, program)
    for number, word in enumerate(command):
        found = os.path.normpath(os.path.join(project.start, word))
        if word.endswith(".py") and not os.path.isabs(word) and found in copied:
            return Script(found, words_from(number + 1), os.path.dirname(found), program)
    return None


def of_interpreter(request: Request, project: Project, selection: Selection | None) -> dict[str, str]:
    """Return the questions about the script to the interpreter that runs it; empty if no machine can be asked."""
    from trainjob.check import requirements  # loads what reaches other machines, and a plan asks for the script alone

    script = script_of(request, project, selection)
    first = (request.job.command or ("",))[0]
    if script is None or requirements.program(request) is None or os.path.basename(first) in _BRING_PYTHON:
        return {}
    return asked(script, script.program)


def asked(script: Script, program: str) -> dict[str, str]:
    """Return the questions of the probe to the interpreter `program`, or to that of a launcher of this name."""
    return {
        "script-report": _REPORT,
        "script-questions": script.questions(imports=True),
        "unpack": "yes",
        "script-program": program,
    }
