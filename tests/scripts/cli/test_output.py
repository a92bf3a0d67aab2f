"""Standard output that goes to a disk that is full."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import ran

SUBMIT = ["submit", "--cluster", "local", "--again", "--no-check"]
LOST = "standard output can't be written: No space left on device"


def ended(folder: Path, redirect: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", "-c", f'exec "$@" {redirect}', "sh", sys.executable, "-m", "trainjob.cli.main", *words]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "XDG_DATA_HOME": str(folder / "data")}
    (folder / "here").mkdir()
    return ran(command, folder=folder / "here", environ=environment, timeout_s=120)


@pytest.mark.parametrize("words", [["list"], ["list", "--json"], ["--help"]], ids=" ".join)
def test_output_that_has_no_room_is_an_error_and_no_bug(tmp_path: Path, words: list[str]) -> None:
    output = ended(tmp_path, ">/dev/full", *words)
    assert (output.returncode, output.stderr.count("\n"), LOST in output.stderr) == (1, 1, True), output


@pytest.mark.parametrize(("words", "code"), [([], 1), (["--json"], 1), (["--follow"], 1)], ids=str)
def test_a_run_that_was_started_is_named_wherever_the_output_goes(tmp_path: Path, words: list[str], code: int) -> None:
    output = ended(tmp_path, ">/dev/full", *SUBMIT, *words, "--", "true")
    (run,) = (path.name for path in (tmp_path / "data/trainjob/runs").iterdir())
    assert (output.returncode, LOST in output.stderr) == (code, True), output
    assert re.search(rf"submitted run {run}: ", output.stderr)
