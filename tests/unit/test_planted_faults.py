"""Every fault that a test or a benchmark plants fits the code as it is: those that do plant it take minutes."""

from __future__ import annotations

from pathlib import Path

from benchmarks.planted_bugs import Bug, bugs
from tests.support import ROOT
from tests.support.cases import each
from tests.support.planted import WRONG_SUMS, Fault

PLANTED: dict[str, Fault | Bug] = {"wrong sums": WRONG_SUMS, **{bug.bug: bug for bug in bugs()}}


@each("name", PLANTED)
def test_the_text_of_a_planted_fault_stands_in_the_code_once(name: str) -> None:
    fault = PLANTED[name]
    assert (ROOT / "trainjob" / fault.file).read_text().count(fault.text) == 1
    assert fault.instead != fault.text


def test_a_fault_is_planted(tmp_path: Path) -> None:
    copy = tmp_path / WRONG_SUMS.file
    copy.parent.mkdir(parents=True)
    before = (ROOT / "trainjob" / WRONG_SUMS.file).read_text()
    copy.write_text(before)
    exec(WRONG_SUMS.program(str(tmp_path)))
    assert copy.read_text() == before.replace(WRONG_SUMS.text, WRONG_SUMS.instead) != before
