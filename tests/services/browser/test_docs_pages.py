"""The documentation in a real browser: no output, listing or drawing is cut at its right edge."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.services.browser.test_report_pages import browse
from tests.support.programs import ran

Needs = Callable[[str], Path]
ROOT = Path(__file__).resolve().parents[3]
# Each page tells the frame around it which of its blocks are wider than what is seen of them.
PROBE = """<script>
const isCut = e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX != "visible";
addEventListener("load", () => parent.postMessage([PAGE,
  [...document.querySelectorAll("pre > code, pre")].filter(isCut).map(e => e.textContent.slice(0, 60))], "*"));
</script>"""
LISTEN = """<script>
const said = {};
addEventListener("message", e => { said[e.data[0]] = e.data[1]; document.title = JSON.stringify(said); });
</script>"""


@pytest.mark.parametrize("width", [1280])
def test_no_block_of_a_page_is_cut_at_its_right_edge(needs: Needs, tmp_path: Path, width: int) -> None:
    site = tmp_path / "site"
    ran([needs("mkdocs"), "build", "-q", "-d", str(site)], timeout_s=120, code=0, folder=ROOT)
    cut = cut_blocks(needs, tmp_path, sorted(site.rglob("index.html")), width)
    assert len(cut) >= 40
    assert [(name, block) for name, blocks in cut.items() for block in blocks] == []


def test_the_test_sees_a_block_that_is_cut(needs: Needs, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(f'<body><pre style="overflow:auto"><code>{"x" * 2000}</code></pre></body>')
    assert list(cut_blocks(needs, tmp_path, [page], 1280).values()) == [["x" * 60]]


def cut_blocks(needs: Needs, folder: Path, pages: list[Path], width: int) -> dict[str, list[str]]:
    """Return, for each page, how each block begins that is cut in a window of `width` pixels."""
    frames = []
    for page in pages:
        text = page.read_text()
        page.write_text(text.replace("</body>", PROBE.replace("PAGE", json.dumps(str(page))) + "</body>"))
        frames.append(f'<iframe style="width:{width}px;height:900px;border:0" src="{page.as_uri()}"></iframe>')
    outer = folder / "outer.html"
    outer.write_text(f"<head><title></title>{LISTEN}</head><body>{''.join(frames)}</body>")
    seen = browse(
        needs, folder, f"--window-size={width + 100},1000", "--virtual-time-budget=20000", "--dump-dom", outer.as_uri()
    )
    title = re.search(r"<title>(.*?)</title>", seen.stdout, re.DOTALL)
    assert title is not None, seen.stdout[:500]
    found: dict[str, list[str]] = json.loads(html.unescape(title[1]))
    assert set(found) == {str(page) for page in pages}
    return found
