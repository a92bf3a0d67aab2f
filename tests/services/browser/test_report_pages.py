"""The pages of reports in a real browser: they fit a phone and a wide screen, request nothing, and log no error."""

from __future__ import annotations

import html
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import ran
from tests.support.report_runs import described
from trainjob.observe.report import page

Needs = Callable[[str], Path]
# What a page with a width of its own reveals, put behind the page by the test alone.
PROBE = """<script>
addEventListener("load", () => {
const wide = [...document.querySelectorAll("body *")].filter(e => !e.closest(".wide, pre, svg") &&
  e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName);
parent.document.title = JSON.stringify({width: innerWidth, scrolls: document.documentElement.scrollWidth, wide,
  paper: getComputedStyle(document.body).backgroundColor, ink: getComputedStyle(document.body).color,
  requests: performance.getEntriesByType("resource").map(e => e.name),
  drawings: [...document.querySelectorAll("svg")].map(e => Math.round(e.getBoundingClientRect().width))});
});
</script>"""


@pytest.fixture(scope="module", params=["run", "runs"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of one run, and the page that compares four."""
    folder = tmp_path_factory.mktemp("pages")
    runs = [described(folder / f"run-{rate}", learning_rate=rate) for rate in (0.1, 0.2, 0.3, 0.4)]
    target = folder / "page.html"
    target.write_text(page.of_run(runs[0]) if request.param == "run" else page.of_runs(runs))
    return target


@pytest.mark.parametrize("width", [400, 1400])
def test_a_page_fits_its_window_requests_nothing_and_logs_no_error(
    needs: Needs, written: Path, tmp_path: Path, width: int
) -> None:
    seen, logged = look_at(needs, written, tmp_path, width)
    assert seen["width"] == width
    assert seen["scrolls"] <= width
    assert seen["wide"] == []
    assert seen["drawings"]
    assert all(200 <= drawn <= width for drawn in seen["drawings"])
    assert seen["requests"] == []
    assert "CONSOLE" not in logged
    assert _light(seen["paper"]) > 0.9 > 0.2 > _light(seen["ink"])


def test_a_page_is_dark_where_the_reader_prefers_that(needs: Needs, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    target.write_text(page.of_run(described(tmp_path / "run")))
    seen, _ = look_at(needs, target, tmp_path, 400, "--blink-settings=preferredColorScheme=0")
    assert _light(seen["paper"]) < 0.2 < 0.8 < _light(seen["ink"])


def test_all_of_a_page_is_printed_the_job_script_too(needs: Needs, tmp_path: Path) -> None:
    run = described(tmp_path / "run")
    run.paths.job_script.write_text("echo a line\n" * 600)
    target, printed = tmp_path / "page.html", tmp_path / "page.pdf"
    target.write_text(page.of_run(run))
    browse(needs, tmp_path, f"--print-to-pdf={printed}", target.as_uri())
    assert len(re.findall(rb"/Type\s*/Page\b", printed.read_bytes())) >= 600 // 80


def test_the_test_sees_what_is_wrong(needs: Needs, tmp_path: Path) -> None:
    """What the test above relies on: a page that requests something, fails, or is too wide is told apart."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        '<body><p style="width:3000px">wide</p><img src="https://nowhere.invalid/pixel.png">'
        "<script>undefinedName()</script></body>"
    )
    seen, logged = look_at(needs, bad, tmp_path, 400)
    assert seen["requests"] == ["https://nowhere.invalid/pixel.png"]
    assert seen["wide"] == ["P"]
    assert "CONSOLE" in logged


def look_at(needs: Needs, page_file: Path, folder: Path, width: int, *more: str) -> tuple[dict[str, Any], str]:
    """Return what a headless browser makes of a page at `width`, and what it logs."""
    inner = html.escape(page_file.read_text().replace("</body>", PROBE + "</body>"))
    # A window is never narrower than 500; a frame can be.
    frame = folder / "frame.html"
    frame.write_text(f'<iframe style="width:{width}px;height:1200px;border:0" srcdoc="{inner}"></iframe>')
    ended = browse(needs, folder, *more, f"--window-size={width + 100},1300", "--dump-dom", frame.as_uri())
    title = re.search(r"<head><title>(.*?)</title>", ended.stdout, re.DOTALL)
    assert title is not None, ended.stdout[:500]
    return json.loads(html.unescape(title[1])), ended.stderr


def browse(needs: Needs, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a headless browser that finds no host."""
    own = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={folder / 'profile'}")
    alone = ("--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr")
    command = [str(needs("chromium")), *own, *alone, *words]
    return ran(command, timeout_s=90, code=0)


def _light(color: str) -> float:
    """Return how light a color rgb(R, G, B) is: 0 is black, 1 is white."""
    return sum(map(int, re.findall(r"\d+", color)[:3])) / 765
