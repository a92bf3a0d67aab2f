"""The outputs that a page shows: console blocks below a marker that says how to make them.

    <!-- output -->                      the commands run in an empty folder; a test compares what they print today
    <!-- output: PLACE head=4 tail=2 exit=1
    $ COMMAND
    until TEXT
    -->

PLACE is one of docs/places.py. All blocks of a page that name it share its folder, runs and files; the page's own code
blocks whose first line is `# FILE`, or whose fence has title="FILE", lie there. `head` and `tail` are how many lines
stay of an output, with a line `…` for the others, and `exit` is the commands' exit code. The COMMANDs run first and
are not shown; `until` runs the one above it again until it prints TEXT. A block below `<!-- example: WHY -->` can't be
made, and nobody does. A code block that is called like a file of examples/ has the text of that file.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from docs.places import PLACES, Place

MARKED = re.compile(r"<!-- output(?P<about>.*?)-->\n```console\n(?P<shown>.*?)```\n", re.DOTALL)
_NAME = r"[\w.]+\.\w+"
FILE = re.compile(
    rf"^```\w+(?: title=\"(?P<title>{_NAME})\"\n|\n(?=# (?P<name>{_NAME})\n))(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
CUT = "…"
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
# What a command prints every ten seconds: how often depends on the machine.
_WAITING = re.compile(r"  (?:… .*|(?:update \d+ of \d+, )?\d+ s(?:, about .* left)?)")
_UNTIL_S = 300.0
POLL_S = 0.5


class WrongOutputError(Exception):
    """A command did not do what its page shows."""


@dataclass(frozen=True)
class Block:
    """A console block, and how its outputs are made."""

    place: str  # none: a folder of its own
    before: tuple[str, ...]  # commands that are not shown, and the texts to wait for
    commands: tuple[str, ...]
    head: int | None
    tail: int | None
    exit_code: int


def block(marked: re.Match[str]) -> Block:
    """Read a marked block."""
    first, *before = marked["about"].removeprefix(":").strip().splitlines() or [""]
    words = first.split()
    options = {name: int(value) for name, _, value in (word.partition("=") for word in words if "=" in word)}
    commands = tuple(line.removeprefix("$ ") for line in marked["shown"].splitlines() if line.startswith("$ "))
    return Block(
        place=next((word for word in words if "=" not in word), ""),
        before=tuple(before),
        commands=commands,
        head=options.get("head"),
        tail=options.get("tail"),
        exit_code=options.get("exit", 0),
    )


def blocks(text: str) -> Iterator[Block]:
    """Yield the marked blocks of a page."""
    yield from (block(marked) for marked in MARKED.finditer(text))


def files(text: str) -> dict[str, str]:
    """Return the files that a page shows, by name."""
    return {shown["title"] or shown["name"]: shown["text"] for shown in FILE.finditer(text)}


def with_examples(text: str) -> str:
    """Return a page whose blocks that are called like a file of examples/ have its text."""

    def anew(shown: re.Match[str]) -> str:
        example = EXAMPLES / (shown["title"] or shown["name"])
        return shown[0].replace(shown["text"], example.read_text(encoding="utf-8")) if example.exists() else shown[0]

    return FILE.sub(anew, text)


def written(text: str, wanted: Callable[[Block], bool] = lambda _block: True) -> str:
    """Return a page with its examples, and the outputs of its `wanted` blocks, as they are today.

    Raises WrongOutputError.
    """
    text = with_examples(text)
    with ExitStack() as stack:
        open_places: dict[str, Place] = {}

        def anew(marked: re.Match[str]) -> str:
            made = block(marked)
            if not wanted(made):
                return marked[0]
            if not made.place:
                with PLACES["here"](files(text)) as place:
                    return _anew(marked, made, place)
            if made.place not in open_places:
                open_places[made.place] = stack.enter_context(PLACES[made.place](files(text)))
            return _anew(marked, made, open_places[made.place])

        return MARKED.sub(anew, text)


def _anew(marked: re.Match[str], made: Block, place: Place) -> str:
    for line, following in zip(made.before, (*made.before[1:], ""), strict=False):
        if line.startswith("$ "):
            _prepare(place, line.removeprefix("$ "), following)
    shown = []
    for command in made.commands:
        sys.stderr.write(f"$ {command}\n")
        code, text = place.run(command)
        if code != made.exit_code:
            raise WrongOutputError(f"`{command}` exited with {code}, not {made.exit_code}:\n{text}")
        shown.append(f"$ {command}\n{shortened(text, made.head, made.tail)}")
    return f"<!-- output{marked['about']}-->\n```console\n{''.join(shown)}```\n"


def _prepare(place: Place, command: str, following: str) -> None:
    sys.stderr.write(f"  $ {command}\n")
    awaited = following.removeprefix("until ") if following.startswith("until ") else None
    deadline = time.monotonic() + _UNTIL_S
    while True:
        code, text = place.run(command)
        if awaited is None and code:
            raise WrongOutputError(f"`{command}` exited with {code}:\n{text}")
        if awaited is None or awaited in text:
            return
        if time.monotonic() > deadline:
            raise WrongOutputError(f"`{command}` did not print {awaited!r} within {_UNTIL_S:.0f} s:\n{text}")
        time.sleep(POLL_S)


def shortened(text: str, head: int | None, tail: int | None) -> str:
    """Return an output without the lines between its first `head` and its last `tail`."""
    lines = [line for line in text.strip("\n").splitlines() if not _WAITING.fullmatch(line)]
    if head is None and tail is None:
        return "".join(f"{line.rstrip()}\n" for line in lines)
    first, last = lines[: head or 0], lines[max(0, len(lines) - (tail or 0)) :]
    if len(first) + len(last) >= len(lines):
        return shortened(text, None, None)
    return "".join(f"{line.rstrip()}\n" for line in (*first, CUT, *last))
