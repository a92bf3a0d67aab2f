"""Text that shells, Slurm, Jinja and terminals may take for something else: the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator

# What has broken launchers before.
KNOWN = [
    "",
    " ",
    "a,b,c",
    "NAME=value,OTHER=value",
    "hello world",
    "; touch canary #",
    "$(touch canary)",
    "`touch canary`",
    "${IFS}",
    "it's",
    'say "hi"',
    "'; touch canary; '",
    "\n touch canary\n",
    "\r\n\t",
    "--export=ALL",
    "--",
    ":",
    "-x",
    "#SBATCH --nodes=9",
    "\\",
    "a\\nb",
    "!!",
    "*",
    "~/x",
    "{a,b}",
    "%j %x %N %%",
    "{{ 7 * 7 }}",
    "näh ✓ 数 🦉",
    "\u202eright to left",
    "\x1b[31m",
    "\x01\x7f\x85\u2028",
    "x" * 8192,
    "é,;'\"$" * 1365,
]
_PIECES = [
    *" \t\n\r,;:'\"`$(){}[]<>|&*?~#!%@=\\^-+./_",
    *("$(", "${", "$((", "&&", "||", ">>", "<<", "''", '""', "--", "=~", "%s", "%j", "\\n", "\\'", "EOF"),
    *("HOME", "PATH", "touch canary", "SLURM_JOB_ID", "NONE", "ALL", "a", "Z", "0", "7"),
    *("é", "ß", "数", "🦉", "\u00a0", "\u200b", "\u2028", "\x01", "\x7f", "\x85"),
]


def hostile(count: int, seed: int = 1) -> list[str]:
    """Return `count` texts; none holds what no argument can carry (NUL, half of a character)."""
    chosen = random.Random(seed)
    return [*KNOWN, *(_generated(chosen) for _ in range(count - len(KNOWN)))][:count]


def _generated(chosen: random.Random) -> str:
    # Most are short; one in fifty is as long as 8 KiB.
    pieces = chosen.randint(1, 3000) if chosen.random() < 0.02 else chosen.randint(1, 20)
    return "".join(chosen.choice(_PIECES) for _ in range(pieces))[:8192]


def names_for_folders(texts: list[str], most: int) -> Iterator[str]:
    """Return those texts that a folder can be called."""
    usable = (text for text in texts if text not in ("", ".", "..") and "/" not in text and len(text.encode()) < 200)
    for _, text in zip(range(most), usable, strict=False):
        yield text
