"""A new setting is one new row: flag, job key, job.json, runtime and reference page follow from it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.programs import ran

ROW = """    sharpness: float = setting(0.5, "How sharp the loss is.", group=TRAINING, at_least=0, at_most=1)
"""
RUNTIME = """
import sys
from pathlib import Path
from trainjob.records import job
print(job.read(Path(sys.argv[1])).train.sharpness)
"""
PAGE = "from docs.reference_pages import reference; print(reference()['reference/settings.md'])"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the package whose table has one more row."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("trainjob", "templates"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "reference_pages.py", folder / "docs")
    table = folder / "trainjob" / "contract" / "settings.py"
    head = '    """Settings that ranks take as the job states them."""\n'
    before, after = table.read_text(encoding="utf-8").split(head)
    table.write_text(f"{before}{head}\n{ROW}{after}", encoding="utf-8")
    return folder


def python(checkout: Path, *arguments: str, code: int = 0) -> str:
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    ended = ran([sys.executable, *arguments], folder=checkout, environ=environment, code=code)
    return ended.stdout


def trainjob(checkout: Path, *arguments: str, code: int = 0) -> str:
    return python(checkout, "-m", "trainjob.cli.main", *arguments, code=code)


def test_a_row_is_a_flag_with_help_and_default(checkout: Path) -> None:
    text = " ".join(trainjob(checkout, "plan", "--help-all").split())
    assert "--sharpness <float> How sharp the loss is. Default: 0.5." in text


@pytest.mark.parametrize("stated", [["--sharpness", "0.25"], ["--job", "job.yaml"]])
def test_what_a_flag_or_file_states_reaches_the_runtime(checkout: Path, stated: list[str]) -> None:
    (checkout / "job.yaml").write_text("sharpness: 0.25\n")
    shutil.rmtree(checkout / "out", ignore_errors=True)
    trainjob(checkout, "render", *stated, "-o", "out")
    record = json.loads((checkout / "out" / "job.json").read_text(encoding="utf-8"))
    assert record["asked"]["job"] == {"sharpness": 0.25}
    assert record["train"]["sharpness"] == 0.25
    assert python(checkout, "-c", RUNTIME, "out/job.json") == "0.25\n"


def test_its_bounds_are_kept(checkout: Path) -> None:
    refusal = json.loads(trainjob(checkout, "plan", "--json", "--sharpness", "7", code=1))
    assert refusal["error"] == "--sharpness: read 7.0, expected at most 1.0"


def test_it_stands_in_the_reference(checkout: Path) -> None:
    row = "| `--sharpness` | `sharpness` | float | 0.5 | How sharp the loss is. |"
    assert row in python(checkout, "-c", PAGE).splitlines()
