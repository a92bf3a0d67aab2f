"""What commands print."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from trainjob.cli import show

HEAVY = {"torch", "numpy", "pydantic", "yaml", "jinja2", "rich", "ansible", "paramiko"}


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.123, "0.12 s"), (34.56, "34.6 s"), (725, "12 min 5 s"), (12_000, "3 h 20 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert show.seconds(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(999, "999 B"), (115_000, "115.0 kB"), (3_200_000_000, "3.2 GB")])
def test_sizes(count: int, text: str) -> None:
    assert show.size(count) == text


def test_columns_are_aligned_and_lines_have_no_blanks_at_their_end(capsys: pytest.CaptureFixture[str]) -> None:
    show.table(("RUN", "STATE"), [("abcd-job", "LOST"), ("x", "-")])
    assert capsys.readouterr().out == "RUN       STATE\nabcd-job  LOST\nx         -\n"


def test_json_keeps_every_letter(capsys: pytest.CaptureFixture[str]) -> None:
    show.as_json({"name": "größe"})
    printed = capsys.readouterr().out
    assert "größe" in printed
    assert json.loads(printed) == {"name": "größe"}


# typer itself loads pydantic as soon as a command has a parameter to read.
LEFT_OUT = {"--help": HEAVY, "submit --help": HEAVY - {"pydantic"}, "list": HEAVY - {"pydantic"}}


@pytest.mark.parametrize("line", LEFT_OUT)
def test_a_command_loads_only_what_it_uses(line: str) -> None:
    words = line.split()
    program = f"import sys\ntry:\n    from trainjob.cli.main import main\n    main({words})\nfinally:\n"
    program += "    print('loaded', *sys.modules)\n"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(ended.stdout.splitlines()[-1].split())
    assert "trainjob.cli.main" in loaded
    assert not loaded & LEFT_OUT[line]
