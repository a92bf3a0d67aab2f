"""What a check finds."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from trainjob.contract.errors import UserError


@dataclass(frozen=True)
class Problem:
    """Something that would make the run fail. `code` is stable, for machines."""

    code: str
    text: str
    cure: str

    def as_json(self) -> dict[str, str]:
        """Return the problem for `--json`."""
        return asdict(self)

    def __str__(self) -> str:
        end = "" if self.text.endswith(("?", ".")) else "."
        return f"{self.text}{end} {self.cure}" if self.cure else self.text


def of_error(code: str, error: UserError) -> Problem:
    """Return the problem that an error states, whose words hold the cure."""
    return Problem(code, str(error), "")
