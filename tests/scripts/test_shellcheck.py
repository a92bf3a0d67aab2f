"""Every shell file of the project parses, and shellcheck has nothing to say about it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.programs import ran

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("trainjob", "batchfiles", "standins", "playbooks", "containers")
FILES = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.sh"))
# Newer than bash 4.2, which clusters still have.
TOO_NEW = (
    "local -n",
    "declare -n",
    "@Q}",
    "@E}",
    "wait -n",
    "mapfile -d",
    "readarray -d",
    "EPOCHSECONDS",
    "inherit_errexit",
)


# Within a trap, where attempts end, it returns the status that the script ends with.
PLAIN_RETURN = re.compile(r"\breturn\s*(;|$)", re.MULTILINE)


def identity(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("file", sorted((ROOT / "trainjob/launch/shell").glob("*.sh")), ids=identity)
def test_every_return_of_the_library_names_its_status(file: Path) -> None:
    assert not PLAIN_RETURN.search(file.read_text())


def test_there_are_shell_files() -> None:
    assert ROOT / "trainjob/launch/shell/sdk.sh" in FILES


@pytest.mark.parametrize("file", FILES, ids=identity)
def test_shellcheck_has_nothing_to_say(file: Path, needs: Callable[[str], Path]) -> None:
    words: list[str | Path] = [
        needs("shellcheck"),
        "--severity=style",
        "--external-sources",
        "--source-path=SCRIPTDIR",
        "--format=gcc",
    ]
    ended = ran([*words, file])
    assert ended.stdout + ended.stderr == ""


@pytest.mark.parametrize("file", FILES, ids=identity)
def test_no_shell_needs_a_new_bash(file: Path) -> None:
    text = file.read_text()
    assert [words for words in TOO_NEW if words in text] == []
