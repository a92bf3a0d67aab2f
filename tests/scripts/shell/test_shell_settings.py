"""The interpreter of a job: a path, a name, or words that start one, such as `uv run python`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.programs import ran

LIBRARY = ROOT / "trainjob/launch/shell"
# Stands in for uv: it starts this Python, and records where it was called.
UV = f'#!/bin/sh\npwd >"$0.folder"\nshift; shift\nexec {sys.executable} "$@"\n'


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "run/code/project").mkdir(parents=True)
    (tmp_path / "uv").write_text(UV)
    (tmp_path / "uv").chmod(0o755)
    return tmp_path


def use_python(site: Path, *words: str, code: int = 0) -> tuple[str, str]:
    program = 'set -euo pipefail; . "$0/settings.sh"; use_python "$@"; echo "$TRAINJOB_PYTHON ${PATH%%:*}"'
    environ = {"PATH": f"{site}:/usr/bin:/bin", "TRAINJOB_RUN_DIR": str(site / "run")}
    ended = ran(["bash", "-c", program, LIBRARY, *words], environ=environ, code=code)
    return ended.stdout, ended.stderr


def test_words_are_asked_once_for_their_interpreter_in_the_copy_of_the_project(site: Path) -> None:
    out, _ = use_python(site, "uv", "run", "python")
    assert out == f"{sys.executable} {Path(sys.executable).parent}\n"
    assert (site / "uv.folder").read_text() == f"{site}/run/code/project\n"


def test_words_that_fail_end_the_job_and_say_which_key_they_are(site: Path) -> None:
    (site / "uv").write_text("#!/bin/sh\necho no lock >&2; exit 2\n")
    out, err = use_python(site, "uv", "run", "python", code=1)
    assert (out, err) == (
        "",
        "no lock\ntrainjob: no interpreter: uv run python failed (python: in the cluster file)\n",
    )


@pytest.mark.parametrize(("word", "first"), [("/my venv/bin/python", "/my venv/bin"), ("python3", None)])
def test_one_word_is_taken_as_it_is(site: Path, word: str, first: str | None) -> None:
    assert use_python(site, word)[0] == f"{word} {first or site}\n"


def test_limits_that_changed_before_use_python_are_handed_on(site: Path) -> None:
    program = 'set -euo pipefail; . "$0/settings.sh"; ulimit -S -n 99; use_python x; echo "${TRAINJOB_LIMITS-none}"'
    environ = {"PATH": "/usr/bin:/bin", "TRAINJOB_RUN_DIR": str(site / "run")}
    assert ran(["bash", "-c", program, LIBRARY], environ=environ, code=0).stdout == "n=99 \n"
    program = program.replace("ulimit -S -n 99; ", "")
    assert ran(["bash", "-c", program, LIBRARY], environ={**environ, "TRAINJOB_LIMITS": "n=3"}).stdout == "none\n"
