"""A job: a task of our runtime or the user's own command, and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, get_type_hints

from trainjob.cluster import slurm_text
from trainjob.cluster.common import (
    DirectiveName,
    Environment,
    JobName,
    Line,
    Number,
    OptionName,
    PlainText,
    SlurmTime,
    WrittenText,
    refuse_two_memories,
)
from trainjob.cluster.faults import validated
from trainjob.cluster.strict import BreachError, Key, Rule, Strict
from trainjob.contract import roles
from trainjob.contract.errors import RuleError
from trainjob.contract.forms import parse_environment, parse_pattern, parse_ranks, parse_updates
from trainjob.contract.settings import EXCLUSIVE, HOST_RANGE, JobSettings, SettingRow, rows
from trainjob.contract.steps import parse, parse_retry

_Scope = Annotated[str, Rule("^(job|node)$", "job or node")]
_StepKey = Annotated[str, Rule("^(run|shell|name|timeout_s|lock)$", "run, shell, name, timeout_s or lock")]
_RoleName = Annotated[str, Rule(f"^{roles.NAME.pattern}$", "small letters, digits and underscores, at most 32")]
_ROLE_KEYS = tuple(dict.fromkeys((*roles.OF_SERVERS, *roles.OF_JOB)))
_RoleKey = Annotated[str, Rule(f"^({'|'.join(_ROLE_KEYS)})$", ", ".join(_ROLE_KEYS[:-1]) + f" or {_ROLE_KEYS[-1]}")]
_More = Annotated[str, Rule("^(mem|time|attempts)$", "mem, time or attempts")]

# The types behind the names that rows give to forms of text and mappings.
FORMS: dict[str, Any] = {
    "line": Line,
    "job-name": JobName,
    "words": Annotated[list[WrittenText], Rule(fewest=1)],
    "options": dict[OptionName, PlainText | int | float | bool],
    "poprun-options": dict[DirectiveName, PlainText | int | bool],
    "directives": dict[DirectiveName, Line | int | bool],
    "environment": Environment,
    "once": Annotated[dict[_Scope, list[dict[_StepKey, list[PlainText] | float | PlainText]]], Rule(check=parse)],
    "roles": Annotated[
        dict[_RoleName, dict[_RoleKey, list[WrittenText] | Environment | bool | int | float | PlainText]],
        Rule(check=roles.parse),
    ],
    "retry": Annotated[dict[_More, int | WrittenText], Rule(check=parse_retry)],
    "python-environment": Annotated[dict[OptionName, Line], Rule(check=parse_environment)],
    "slurm-time": SlurmTime,
    # `spelled_out` turns a range into two numbers before anything is checked.
    "host-count": Annotated[int, Rule(json_type=("integer", "string"))],
    "update-range": Annotated[str, Rule(check=parse_updates)],
    "progress": Annotated[WrittenText, Rule(check=parse_pattern)],
    "ranks": Annotated[str, Rule(check=parse_ranks)],
    "updates-or-auto": Number | Literal["auto"],
    "array": Annotated[str, Rule(check=slurm_text.parse_array)],
}


class Job(Strict, JobSettings):
    """A job: every key is also a flag."""

    declared: ClassVar[dict[str, Key]] = {
        name: Key(row.default, f"{row.facts.help} Default: {row.facts.absent}." if row.facts.absent else row.facts.help)
        for name, row in rows().items()
    }

    @classmethod
    def annotations(cls) -> Mapping[str, Any]:
        """Return the annotation of each key: those of `contract.settings`, then those of a subclass."""
        own = get_type_hints(cls, include_extras=True) if cls.declared.keys() != Job.declared.keys() else {}
        return {**own, **{name: _annotation(row) for name, row in rows().items()}}

    @classmethod
    def of(cls, values: Mapping[str, object]) -> Self:
        """Return the job with the settings in `values`, checked. Raises InvalidError."""
        return validated(cls, values)

    @classmethod
    def spelled_out(cls, values: Mapping[str, object]) -> Mapping[str, object]:
        """Return `values` with a range of hosts as two numbers: 2-8 becomes hosts 8 and least_hosts 2.

        What the role that needs the others states of the job becomes the job's own, unless the job states it as well.
        """
        values = _with_main_role(values)
        match = HOST_RANGE.fullmatch(str(values.get("hosts")))
        if match is None:
            return values
        return {**values, "hosts": int(match["most"]), "least_hosts": int(match["least"])}

    def enforce_rules(self) -> None:
        """Raise BreachError if two settings exclude each other."""
        for first, second in EXCLUSIVE:
            if getattr(self, first) is not None and getattr(self, second) is not None:
                raise BreachError(second, f"excludes {first}, and both are given", "give one of them")
        refuse_two_memories(self.directives)

    def given(self) -> dict[str, Any]:
        """Return the settings that the job states, by name, without those left at their defaults."""
        values = {name: getattr(self, name) for name in self.declared}
        return {
            name: value for name, value in values.items() if name in self.stated or value != self.declared[name].default
        }


def _with_main_role(values: Mapping[str, object]) -> Mapping[str, object]:
    stated = values.get("roles")
    try:
        main = roles.main_of(stated) if isinstance(stated, Mapping) and stated else None
    except (RuleError, AttributeError, TypeError):  # the checks of the values say what is wrong
        main = None
    if main is None or not isinstance(stated, Mapping):
        return values
    of_job = {key: value for key, value in stated[main].items() if key in roles.OF_JOB}
    if stated[main].get("ray"):  # one program on each node starts Ray there
        of_job = {"command_per": "node", **of_job}
    kept = {key: value for key, value in stated[main].items() if key not in roles.OF_JOB}
    return {**of_job, **values, "roles": {**stated, main: kept}}


def _annotation(row: SettingRow) -> Any:
    facts = row.facts
    plain = FORMS[facts.form] if facts.form else row.type
    rule = Rule(at_least=facts.at_least, above=facts.above, at_most=facts.at_most, below=facts.below)
    bounded = plain if rule == Rule() else Annotated[plain, rule]
    return bounded | None if row.is_optional else bounded
