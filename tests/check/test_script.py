"""What a check says of the user's own script, which it does not run: its syntax, its imports, and its words."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.check.test_job import texts
from tests.support.local_runs import Here
from tests.support.submit_cases import repository, write

PARSER = """
import argparse
parser = argparse.ArgumentParser(description="trains")
group = parser.add_argument_group("optimizer")
group.add_argument("--lr", "--learning-rate", type=float, default=1e-3)
parser.add_argument("data", nargs="?")
parser.add_argument("--model", choices=["a", "b"])
parser.add_argument("--compile", action=argparse.BooleanOptionalAction)
if __name__ == "__main__":
    open("it-ran", "w")
    args = parser.parse_args()
"""


def problems_of(folder: Path, text: str, *words: str, place: dict[str, Any] | None = None) -> list[tuple[str, str]]:
    write(folder, "train.py", text=text)
    found = texts(folder, place, command=[sys.executable, "train.py", *words])
    assert not (folder / "it-ran").exists()
    return found


def test_a_syntax_error_has_its_line(tmp_path: Path) -> None:
    ((code, text),) = problems_of(tmp_path, "import os\nprint('a'\n")
    assert code == "script-syntax"
    assert text.startswith("train.py:2: SyntaxError: '(' was never closed, says Python 3.")


def test_a_syntax_error_in_a_module_that_the_script_imports(tmp_path: Path) -> None:
    write(tmp_path, "model/__init__.py", text="")
    write(tmp_path, "model/layers.py", text="def f(:\n")
    ((code, text),) = problems_of(tmp_path, "from model.layers import f\n")
    assert (code, text.partition(": ")[0]) == ("script-syntax", "model/layers.py:1")


def test_a_module_that_the_interpreter_does_not_have(tmp_path: Path) -> None:
    ((code, text),) = problems_of(tmp_path, "import os\nimport nobodys_module.part\n")
    assert code == "script-import"
    assert text == (
        f"train.py:2 imports nobodys_module, which {sys.executable} on this machine does not have. Install it there, "
        "name another interpreter (python: in the cluster file), or add nobodys_module.py to the project"
    )


def test_a_module_of_the_project_that_git_does_not_track(tmp_path: Path) -> None:
    top = repository(tmp_path / "p", "train.py")
    write(top, "helper.py", text="")
    ((code, text),) = problems_of(top, "import helper\n")
    assert code == "script-import"
    assert text.endswith("git does not track it. Run: git add helper.py, or give --untracked")


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    import nobodys\nexcept ImportError:\n    pass\n",
        "import sys\nif sys.version_info < (3,):\n    import nobodys\n",
        "def f():\n    import nobodys\n",
        "import sys\nsys.path.append('/elsewhere')\nimport nobodys\n",
        "import json, torch\nfrom torch import nn\n",
        "from . import nobodys\n",
    ],
)
def test_what_is_not_certain_is_not_reported(tmp_path: Path, text: str) -> None:
    assert problems_of(tmp_path, text) == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--lrr", "1"], "unrecognized arguments: --lrr"),
        (["--lr", "x"], "argument --lr/--learning-rate: invalid float value: 'x'"),
        (["--model", "c"], "argument --model: invalid choice: 'c' (choose from "),
        (["a", "b"], "unrecognized arguments: b"),
        (["--lr"], "argument --lr/--learning-rate: expected one argument"),
    ],
)
def test_words_that_the_scripts_own_argparse_refuses(tmp_path: Path, words: list[str], why: str) -> None:
    ((code, text),) = problems_of(tmp_path, PARSER, *words)
    assert (code, text.startswith(f"train.py refuses its words: {why}")) == ("script-words", True)


def test_words_that_are_longer_in_json_than_an_argument_may_be(tmp_path: Path) -> None:
    ((code, text),) = problems_of(tmp_path, PARSER, "ä" * 40_000, "--lr", "fast")
    assert (code, "invalid float value: 'fast'" in text) == ("script-words", True)


@pytest.mark.parametrize("words", [[], ["--lr", "1e-4", "x"], ["--learning", "3"], ["--no-compile"], ["--help"]])
def test_words_that_it_takes(tmp_path: Path, words: list[str]) -> None:
    assert problems_of(tmp_path, PARSER, *words) == []


@pytest.mark.parametrize(
    "more",
    [
        "import other\nother.add_options(parser)\n",
        "parser.parse_known_args()\n",
        "for name in 'xy':\n    parser.add_argument('--' + name)\n",
        "sub = parser.add_subparsers()\n",
    ],
)
def test_a_parser_whose_options_are_not_all_written_out_refuses_nothing(tmp_path: Path, more: str) -> None:
    write(tmp_path, "other.py", text="")
    assert problems_of(tmp_path, f"{PARSER}{more}", "--lrr", "1") == []


def test_the_interpreter_of_a_launcher_is_asked(tmp_path: Path) -> None:
    write(tmp_path, "bin/launch", text=f"#!{sys.executable}\n")
    (tmp_path / "bin/launch").chmod(0o755)
    write(tmp_path, "train.py", text="import nobodys\n")
    ((code, _),) = texts(tmp_path, command=[str(tmp_path / "bin/launch"), "--nnodes", "1", "train.py", "--x"])
    assert code == "script-import"


def test_where_a_prologue_brings_the_interpreter_ours_reads_the_script(tmp_path: Path) -> None:
    write(tmp_path, "train.py", text="import nobodys\nprint('a'\n")
    ((code, text),) = texts(tmp_path, {"prologue": ["module load torch"]}, command=["python", "train.py"])
    assert (code, "Correct it, or --no-check submits it all the same" in text) == ("script-syntax", True)


def test_a_rehearsal_refuses_what_a_submission_refuses(here: Here) -> None:
    refused = here.run("rehearse", "--cluster", "slurm-gpu", "--", "python3", "nowhere.py", code=1).stderr
    assert "nowhere.py does not exist in" in refused
    here.write("train.py", "print('a'\n")
    refused = here.run("rehearse", "--cluster", "slurm-gpu", "--", "python3", "train.py", code=1).stderr
    assert "train.py:1: SyntaxError" in refused
