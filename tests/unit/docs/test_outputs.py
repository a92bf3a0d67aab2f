"""Every output that a page shows is made by `make docs-outputs`, or is called an example."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs import outputs
from docs.places import PLACES, Place
from tests.support import ROOT
from tests.support.cases import each

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLE = re.compile(r"<!-- example: .+ -->")
# What stands alone in an indented block is what a reader types. Drawings and formulas are fenced as text.
PROGRAMS = ("trainjob", "make", "cd", "git", "pip", "uv", "conda", "module", ".")
SOURCES = ("python", "yaml", "text", "bash")


@each("page", PAGES)
def test_no_output_is_pasted(page: Path) -> None:
    assert list(pasted(page.read_text(encoding="utf-8"))) == []


@each("page", PAGES)
def test_a_page_shows_the_examples_as_they_are(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert outputs.with_examples(text) == text, "make docs-outputs writes it anew"


def test_every_example_is_shown() -> None:
    shown = outputs.files((ROOT / "docs/examples.md").read_text(encoding="utf-8"))
    assert {path.name for path in outputs.EXAMPLES.iterdir() if path.is_file()} == set(shown)


def test_a_pasted_output_is_found() -> None:
    marked = "<!-- output -->\n```console\n$ trainjob list\n```\n"
    text = f"    $ trainjob list\n    no runs\n\n```console\n$ trainjob list\n```\n\n{marked}"
    assert list(pasted(text)) == ["    $ trainjob list", "    no runs", "```console"]


@each("page", PAGES)
def test_every_marker_is_understood(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    made = list(outputs.blocks(text))
    assert len(made) == text.count("<!-- output")
    for block in made:
        assert block.commands
        assert block.place in ("", *PLACES)
        assert all(line.startswith(("$ ", "until ")) for line in block.before)


@each("page", PAGES)
def test_a_page_calls_an_example_so(page: Path) -> None:
    for before in EXAMPLE.split(page.read_text(encoding="utf-8"))[:-1]:
        assert "example" in before.strip().splitlines()[-1]


def test_outputs_are_shortened_at_a_marked_place() -> None:
    waiting = "  … 10 s: it runs\n  20 s\n  update 256 of 537, 21 s, about 21 s left\n"
    text = f"one\ntwo\n{waiting}three\nfour\n"
    assert outputs.shortened(text, 1, 2) == "one\n…\nthree\nfour\n"
    assert outputs.shortened(text, None, 1) == "…\nfour\n"
    assert outputs.shortened(text, 2, 2) == "one\ntwo\nthree\nfour\n"


def test_a_block_says_how_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page's blocks share a place; what a block needs first is done, and waited for, and not shown."""
    asked: list[str] = []

    def call(command: str) -> tuple[int, str]:
        asked.append(command)
        return int(command == "refused"), f"/scratch answers {command} {asked.count(command)}\n"

    monkeypatch.setitem(PLACES, "here", lambda _files: _Given(Place(call, {"/scratch": "~"})))
    monkeypatch.setattr(outputs, "POLL_S", 0.0)
    text = (
        "<!-- output: here\n$ first\nuntil first 3\n-->\n```console\n$ show\nold\n```\n"
        "<!-- output: here exit=1 -->\n```console\n$ refused\n```\n"
    )
    written = outputs.written(text)
    assert asked == ["first", "first", "first", "show", "refused"]
    assert "$ show\n~ answers show 1\n```" in written
    assert "$ refused\n~ answers refused 1\n```" in written
    with pytest.raises(outputs.WrongOutputError, match="exited with 1, not 0"):
        outputs.written("<!-- output: here -->\n```console\n$ refused\n```\n")


def test_files_of_a_page_are_those_with_a_name() -> None:
    assert outputs.files("```python\n# a.py\nx = 1\n```\n\n```yaml\nkind: local\n```\n") == {"a.py": "# a.py\nx = 1\n"}
    # Where a comment can't be the first line.
    assert outputs.files('```bash title="a.sh"\n#!/bin/sh\n```\n') == {"a.sh": "#!/bin/sh\n"}


class _Given:
    def __init__(self, place: Place) -> None:
        self.place = place

    def __enter__(self) -> Place:
        return self.place

    def __exit__(self, *_: object) -> None:
        pass


def pasted(text: str) -> Iterator[str]:
    """Yield the lines of a page that are, or begin, an output that nobody makes anew."""
    marked = {match.end() for match in re.finditer(r"<!-- output.*?-->\n|<!-- example: .+? -->\n", text, re.DOTALL)}
    position, inside = 0, False
    for line in text.splitlines(keepends=True):
        if line.startswith("```"):
            inside = not inside
            if inside and position not in marked and line.strip("`\n").partition(" title=")[0] not in SOURCES:
                yield line.rstrip()
        elif not inside and line.startswith("    ") and line.split()[0] not in PROGRAMS:
            yield line.rstrip()
        position += len(line)
