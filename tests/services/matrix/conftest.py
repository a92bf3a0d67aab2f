"""What the matrix has shown, as a page: a row for each fault of a job, a column for each site."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

CELL, ROW = "matrix cell", "matrix row"
# The page that `make matrix` writes.
_PAGE = "TRAINJOB_MATRIX_PAGE"
_TITLE = """# Slurm releases tested

`make matrix` starts a private Slurm for each column, and tries each row on a job there. {passed} of {run} trials
passed. A column is a release, the plugin that binds tasks to CPUs (`none` or `affinity`), and whether accounts are
checked (`+ accounting`). An empty cell was not run. Daemons and commands are those of Debian's packages. All nodes are
daemons on one machine. 24.11 and 26.05 have no column with accounting: Debian's slurmdbd ends when it starts,
because its MariaDB client 11.8.9 refuses the answer to its first query (error 5027).

"""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the page where one is asked for."""
    page = os.environ.get(_PAGE)
    if page:
        reports = [report for among in ("passed", "failed") for report in terminalreporter.getreports(among)]
        Path(page).write_text(_page(reports))


def _page(reports: Iterable[pytest.TestReport]) -> str:
    held: dict[str, dict[str, bool]] = {}
    for report in reports:
        properties = {name: str(value) for name, value in report.user_properties}
        if ROW in properties:
            of_row = held.setdefault(properties[ROW], {})
            of_row[properties[CELL]] = of_row.get(properties[CELL], True) and report.passed
    cells = sorted({cell for of_row in held.values() for cell in of_row})
    results = [result for of_row in held.values() for result in of_row.values()]
    lines = [_line(["", *cells]), _line(["---"] * (len(cells) + 1))]
    words = {True: "yes", False: "**no**", None: ""}
    lines += [_line([row, *(words[held[row].get(cell)] for cell in cells)]) for row in held]
    return _TITLE.format(passed=sum(results), run=len(results)) + "".join(lines)


def _line(words: list[str]) -> str:
    return f"| {' | '.join(words)} |\n"
