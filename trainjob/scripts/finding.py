"""A fault of a batch file, found."""

from __future__ import annotations

from typing import Any, NamedTuple

from trainjob.scripts.codes import CODES, Code, Severity


class Finding(NamedTuple):
    """A fault in one line of a file. `text` says what was read there."""

    code: str
    line: int
    text: str
    lighter: Severity | None = None  # where it matters less than usual
    path: str = ""  # of a script that the batch file calls; empty for the file itself

    @property
    def row(self) -> Code:
        """The code's row of the table."""
        return CODES[self.code]

    @property
    def severity(self) -> Severity:
        """The severity of the fault here."""
        return self.lighter or self.row.severity

    def as_json(self) -> dict[str, Any]:
        """Return the finding for `--json`."""
        return {
            "code": self.code,
            "severity": self.severity.value,
            "line": self.line,
            "text": self.text,
            "happens": self.row.happens,
            "cure": self.row.cure,
        }
