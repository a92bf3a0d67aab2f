"""What the documentation shows of a command's output is what the command prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.docs import generator

PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if "<!-- output -->" in page.read_text()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_outputs_are_those_of_today(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert generator().write_outputs(text) == text, "make docs-outputs writes them anew"
