"""Golden scripts, compared whole: what a user reads in a script is what this file holds."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from render_cases import GOLDEN, golden_requests, rendered

REQUESTS = golden_requests()
CASES = [(name, ending, file) for name in REQUESTS for ending, file in ((".sh", "job.sh"), (".job.json", "job.json"))]


@pytest.mark.parametrize(("name", "ending", "file"), CASES)
def test_renders_the_golden_bytes(name: str, ending: str, file: str, write_golden: bool) -> None:
    golden = GOLDEN / f"{name}{ending}"
    content = rendered(REQUESTS[name]).files[file].content
    if write_golden:
        golden.write_bytes(content)
    assert golden.read_bytes() == content


def test_every_golden_file_has_a_case() -> None:
    assert {path.name for path in GOLDEN.glob("local-*")} == {f"{name}{ending}" for name, ending, _ in CASES}


@pytest.mark.parametrize("name", REQUESTS)
def test_bash_can_read_it(name: str) -> None:
    ended = subprocess.run(["bash", "-n", GOLDEN / f"{name}.sh"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("name", REQUESTS)
def test_shellcheck_has_nothing_to_say(name: str, needs: Callable[[str], Path]) -> None:
    arguments = [needs("shellcheck"), "--severity=style", "--external-sources", GOLDEN / f"{name}.sh"]
    ended = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "")


@pytest.mark.parametrize("name", REQUESTS)
def test_a_script_is_executable_and_job_json_is_not(name: str) -> None:
    assert {file: content.mode for file, content in rendered(REQUESTS[name]).files.items()} == {
        "job.sh": 0o755,
        "job.json": 0o644,
    }
