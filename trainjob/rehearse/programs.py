"""Puts `poprun` and `vipu` where a rehearsal finds them. They are on no PATH otherwise."""

from __future__ import annotations

import shlex
from pathlib import Path

import trainjob

_ROOT = Path(trainjob.__file__).resolve().parent.parent
_CODE = """import sys
sys.path.insert(0, sys.argv.pop(1))
from trainjob.rehearse.standins.pod.{name} import main
sys.exit(main(sys.argv[1:]))"""


def write(folder: Path, python: str) -> None:
    """Write both programs into `folder`, run by the interpreter `python` (3.8 or newer)."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("poprun", "vipu"):
        words = [python, "-c", _CODE.format(name=name), str(_ROOT)]
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        program.chmod(0o755)
