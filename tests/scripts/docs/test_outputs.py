"""What the documentation shows of a command's output is what the command prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import outputs
from tests.support import ROOT


def quick(block: outputs.Block) -> bool:
    """Return whether a block's commands start nothing: those that do have a place, and print times and ids."""
    return not block.place


PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if any(map(quick, outputs.blocks(page.read_text(encoding="utf-8"))))
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_outputs_are_those_of_today(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert outputs.written(text, quick) == text, "make docs-outputs writes them anew"
