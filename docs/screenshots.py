"""Draws the reports that the documentation shows, as a browser does, at 400 and 1,400 pixels.

python docs/screenshots.py [FOLDER]    # keeps the pages there; runs whose page is there are not made again

Makes a Slurm run that is preempted and requeued, the rehearsal of a pod and four runs on this machine: minutes. Needs
what `trainjob rehearse` needs for Slurm, and Chromium.
"""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

IMAGES = Path(__file__).resolve().parent / "images"
WIDTHS = (400, 1400)
# What a browser makes higher is cut: the end of a page is the job script.
_MOST_PIXELS = 5600
_TRAINJOB = (sys.executable, "-c", "from trainjob.cli.main import main; main()")
_MEASURE = "<script>addEventListener('load', () => {parent.document.title = document.body.scrollHeight})</script>"


def _trainjob(folder: Path, *words: str) -> str:
    environ = {**os.environ, "XDG_DATA_HOME": str(folder / "data"), "TRAINJOB_COLOR": "never"}
    ended = subprocess.run([*_TRAINJOB, *words], cwd=folder, env=environ, capture_output=True, text=True, check=False)
    if ended.returncode:
        sys.exit(f"trainjob {' '.join(words)}:\n{ended.stdout}{ended.stderr}")
    return ended.stdout


def _rehearsed(folder: Path, *words: str) -> list[str]:
    """Return the run directory that a rehearsal keeps."""
    rehearsed = json.loads(_trainjob(folder, "rehearse", "--keep", "--json", *words))
    return [str(rehearsed["folder"])]


def requeued(folder: Path) -> list[str]:
    """Return a run that a more urgent job took the nodes of, and that Slurm started again."""
    long = ("--updates", "300", "--checkpoint-every", "20")
    return _rehearsed(folder, "--cluster", "slurm-gpu", "--instances", "4", "--inject", "preempt", *long)


def pod(folder: Path) -> list[str]:
    """Return the rehearsal of a job on a pod."""
    return _rehearsed(folder, "--cluster", "pod16", "--instances", "4", "--updates", "60")


def compared(folder: Path) -> list[str]:
    """Return four runs with other learning rates."""
    job = ("--cluster", "local", "--instances", "2", "--epochs", "4", "--name", "digits", "--again", "--follow")
    for rate in ("0.01", "0.05", "0.1", "0.2"):
        _trainjob(folder, "submit", *job, "--learning-rate", rate)
    return [run["id"] for run in json.loads(_trainjob(folder, "list", "--json")) if run["name"] == "digits"]


def screenshot(page: Path, width: int, target: Path) -> None:
    """Write what a browser shows of `page` in a window of `width`; one is never narrower than 500, a frame can be."""
    with tempfile.TemporaryDirectory() as temporary:
        frame, picture = Path(temporary) / "frame.html", Path(temporary) / "picture.png"
        text = html.escape(page.read_text().replace("</body>", _MEASURE + "</body>"))
        made = '<body style="margin:0"><iframe style="width:{}px;height:{}px;border:0" srcdoc="{}"></iframe>'
        chromium = [
            *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
            f"--user-data-dir={temporary}/profile",
        ]
        frame.write_text(made.format(width, 1000, text))
        shown = subprocess.run([*chromium, "--dump-dom", frame.as_uri()], capture_output=True, text=True, check=True)
        title = re.search(r"<title>(\d+)</title>", shown.stdout)
        height = min(_MOST_PIXELS, int(title[1]) + 32 if title else _MOST_PIXELS)
        frame.write_text(made.format(width, height, text))
        size = f"--window-size={max(width, 500)},{height}"
        subprocess.run([*chromium, size, f"--screenshot={picture}", frame.as_uri()], capture_output=True, check=True)
        with Image.open(picture) as drawn:
            drawn.crop((0, 0, width, height)).convert("RGB").save(target, quality=70, method=6)


def main(folder: Path) -> None:
    """Make the runs, their pages and the pictures of these."""
    folder.mkdir(parents=True, exist_ok=True)
    for make in (requeued, pod, compared):
        page = folder / f"{make.__name__}.html"
        if not page.exists():
            _trainjob(folder, "report", *make(folder), "--html", str(page))
        for width in WIDTHS:
            target = IMAGES / f"{make.__name__}-{width}.webp"
            screenshot(page, width, target)
            sys.stdout.write(f"{target.name}: {target.stat().st_size / 1e3:.0f} kB\n")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]).resolve())
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
