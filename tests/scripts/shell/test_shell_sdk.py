"""Enabling a Poplar SDK: under strict options, once only, and without ending the shell where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.programs import ran

LIBRARY = Path(__file__).resolve().parents[3] / "trainjob/launch/shell"
# As the vendor's: reads what may be unset, and refuses to be sourced twice.
POPLAR = """\
if [ -n "$POPLAR_SDK_ENABLED" ]; then echo "already enabled" >&2; return 1; fi
echo "poplar $# $UNSET_BY_ALL"
export POPLAR_SDK_ENABLED=$(dirname "${BASH_SOURCE[0]}")
export PATH=$POPLAR_SDK_ENABLED/bin:$PATH
"""


@pytest.fixture
def sdk(tmp_path: Path) -> Path:
    for name, text in (("poplar-1", POPLAR), ("popart-1", "echo popart; false\n")):
        (tmp_path / "the sdk" / name).mkdir(parents=True)
        (tmp_path / "the sdk" / name / "enable.sh").write_text(text)
    return tmp_path / "the sdk"


def bash(program: str, *words: object) -> tuple[int, str, str]:
    text = f'. "$0/sdk.sh"\n{program}'
    ended = ran(["bash", "-c", text, LIBRARY, *map(str, words)], environ={"PATH": "/usr/bin:/bin"})
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize("options", ["set -euo pipefail", "set -e", ":"])
def test_poplar_and_popart_are_enabled_and_the_options_stay(sdk: Path, options: str) -> None:
    code, out, err = bash(f'{options}; before=$-; enable_sdk "$1"; [[ $- == "$before" ]]; echo "${{PATH%%:*}}"', sdk)
    assert (code, out, err) == (0, f"poplar 0 \npopart\n{sdk}/poplar-1/bin\n", "")


def test_once_only(sdk: Path) -> None:
    code, out, err = bash('set -euo pipefail; enable_sdk "$1"; enable_sdk "$1"', sdk)
    assert (code, out, err) == (0, "poplar 0 \npopart\n", "")


def test_another_sdk_that_is_enabled_gives_way(sdk: Path) -> None:
    code, out, _ = bash('POPLAR_SDK_ENABLED=/opt/other/poplar-2; enable_sdk "$1"; echo "$POPLAR_SDK_ENABLED"', sdk)
    assert (code, out.splitlines()[-1]) == (0, f"{sdk}/poplar-1")


@pytest.mark.parametrize("shell", ["bash", "bash --posix"])
def test_where_there_is_none_it_says_so_and_the_shell_goes_on(tmp_path: Path, shell: str) -> None:
    program = '. "$0/sdk.sh"; enable_sdk "$1" || echo "went on with $?"'
    ended = ran([*shell.split(), "-c", program, LIBRARY, tmp_path], environ={})
    assert ended.stdout == "went on with 1\n"
    assert ended.stderr == (
        f"trainjob: no SDK was enabled: sdk.path is the folder that holds poplar-*/enable.sh, and it is {tmp_path}\n"
    )


def test_a_virtual_environment_comes_first_on_the_path() -> None:
    _, out, _ = bash('use_venv "$1"; echo "$VIRTUAL_ENV $PATH"', "/a b")
    assert out == "/a b /a b/bin:/usr/bin:/bin\n"
