"""Detects commands that are shell scripts with a trap for USR1, as many scripts written for sbatch are.

Ranks start with USR1 ignored, because Slurm sends it to every process of a step and one without a handler must survive.
A program can set a handler all the same. A shell can't: POSIX forbids it to trap a signal that was ignored when it
started. Such a script therefore starts with the signal's default action, as it would under plain sbatch.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Optional, Sequence

_SHELLS = ("sh", "bash", "dash", "ksh", "zsh")
_SHEBANG = r"#!.*\b(?:%s)\b" % "|".join(_SHELLS)
# `trap` at the beginning of a command, then its words up to the end of the command.
_TRAP = r"(?m)(?:^|[;&|{(]|\b(?:then|do|else)\b)[ \t]*trap[ \t][^\n]*\b(?:SIG)?USR1\b"
_MOST_CHARACTERS = 1 << 20


def traps_usr1(command: Sequence[str], folder: Path) -> bool:
    """Return whether `command`, started in `folder`, is a shell script, or a shell with -c, that traps USR1."""
    program, *words = command
    if os.path.basename(program) not in _SHELLS:
        text = _text(folder / program) if "/" in program else None
        return bool(text and re.match(_SHEBANG, text) and re.search(_TRAP, text))
    options = [word for word in words if word.startswith("-")]
    first = next((word for word in words if not word.startswith("-")), None)
    if first is None:
        return False
    is_program = any("c" in option and not option.startswith("--") for option in options[: words.index(first)])
    text = first if is_program else _text(folder / first)
    return bool(text and re.search(_TRAP, text))


def _text(script: Path) -> Optional[str]:
    try:
        with open(str(script), encoding="utf-8", errors="replace") as stream:
            return stream.read(_MOST_CHARACTERS)
    except OSError:
        return None
