"""What to run: a task of our runtime or the user's own command, and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from trainjob.cluster import array
from trainjob.cluster.common import (
    JOB_NAME,
    DirectiveName,
    Environment,
    Line,
    Number,
    OptionName,
    PlainText,
    SlurmTime,
    WrittenText,
)
from trainjob.cluster.strict import BreachError, Key, Rule, Strict
from trainjob.cluster.validation import validated
from trainjob.contract.settings import EXCLUSIVE, HOST_RANGE, JobSettings, Row, names, rows
from trainjob.records.profile import parse_ranks, parse_updates

# The types behind the names that rows give to forms of text and mappings.
FORMS: dict[str, Any] = {
    "line": Line,
    "job-name": Annotated[str, Rule(JOB_NAME)],
    "words": Annotated[list[WrittenText], Rule(fewest=1)],
    "further-words": list[WrittenText],
    "options": dict[OptionName, PlainText | int | float | bool],
    "poprun-options": dict[DirectiveName, PlainText | int | bool],
    "directives": dict[DirectiveName, Line | int | bool],
    "environment": Environment,
    "slurm-time": SlurmTime,
    # `spelled_out` turns a range into two numbers before anything is checked.
    "host-count": Annotated[int, Rule(json_type=("integer", "string"))],
    "update-range": Annotated[str, Rule(check=parse_updates)],
    "ranks": Annotated[str, Rule(check=parse_ranks)],
    "updates-or-auto": Number | Literal["auto"],
    "array": Annotated[str, Rule(check=array.parse)],
}


@dataclass(frozen=True)
class Job(JobSettings, Strict):
    """A job: every key is also a flag."""

    @classmethod
    def keys(cls) -> Mapping[str, Key]:
        """Return the keys by name: the rows of `contract.settings`."""
        table: Any = cls
        return {name: _key(row) for name, row in rows(table).items()}

    @classmethod
    def of(cls, values: Mapping[str, object]) -> Self:
        """Return the job with the settings in `values`, checked. Raises InvalidError."""
        return validated(cls, values)

    @classmethod
    def spelled_out(cls, values: Mapping[str, object]) -> Mapping[str, object]:
        """Return `values` with a range of hosts as two numbers: 2-8 becomes hosts 8 and least_hosts 2."""
        match = HOST_RANGE.fullmatch(str(values.get("hosts")))
        if match is None:
            return values
        return {**values, "hosts": int(match["most"]), "least_hosts": int(match["least"])}

    def enforce_rules(self) -> None:
        """Raise BreachError if two settings exclude each other."""
        for first, second in EXCLUSIVE:
            if getattr(self, first) is not None and getattr(self, second) is not None:
                raise BreachError(second, f"is given, and {first} is given too", "take one of them out")

    def given(self) -> dict[str, Any]:
        """Return the settings that the job states, by name, without those left at their defaults."""
        return {
            name: value
            for name in names(type(self))
            for value in (getattr(self, name),)
            if name in self.stated or value != _DEFAULTS.get(name)
        }


_DEFAULTS = {name: getattr(Job(), name) for name in names(Job)}


def _key(row: Row) -> Key:
    facts = row.facts
    plain = FORMS[facts.form] if facts.form else row.type
    rule = Rule(at_least=facts.at_least, above=facts.above, at_most=facts.at_most, below=facts.below)
    bounded = plain if rule == Rule() else Annotated[plain, rule]
    absent = f" Default: {facts.absent}." if facts.absent else ""
    return Key(bounded | None if row.is_optional else bounded, row.default, f"{facts.help}{absent}")
