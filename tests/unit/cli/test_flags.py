"""Every setting is a flag, made from its row."""

from __future__ import annotations

import importlib
import inspect
import typing

import pytest

from trainjob.cli import job_flags
from trainjob.cli.job_flags import takes_a_job
from trainjob.cli.lazy import COMMANDS, HEADINGS
from trainjob.contract.settings import Row, rows


@pytest.mark.parametrize("row", [row for row in rows().values() if row.name != "command"], ids=lambda row: row.name)
def test_every_setting_is_a_flag_with_its_help_and_default(row: Row) -> None:
    parameter = inspect.signature(takes_a_job(lambda flags: None)).parameters[row.name]
    kind, option = typing.get_args(parameter.annotation)
    plain = next(one for one in typing.get_args(kind) if one is not type(None))
    takes_words = row.choices or row.facts.form in ("host-count", "updates-or-auto")
    assert plain == (list[str] if row.is_mapping else str if takes_words else row.type)
    assert option.help.startswith(row.facts.help)
    assert option.help.endswith(f" Default: {row.default_in_words}.")
    assert all(choice in option.help for choice in row.choices)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_says_of_itself_what_the_table_says(command: str) -> None:
    app = importlib.import_module(COMMANDS[command]).app
    said = app.info.help if isinstance(app.info.help, str) else app.registered_commands[0].callback.__doc__
    helps = {name: text for commands in HEADINGS.values() for name, text in commands.items()}
    assert said.startswith(helps[command].removesuffix("."))


@pytest.mark.parametrize(
    ("text", "value"),
    [("width=100", 100), ("rate=1e-3", 0.001), ("deep=true", True), ("name=a=b", "a=b"), ("empty=", "")],
)
def test_an_option_of_a_task_has_the_type_that_it_is_written_in(text: str, value: object) -> None:
    assert list(dict([job_flags._pair(text, rows()["set"])]).values()) == [value]


def test_a_variable_stays_text() -> None:
    assert job_flags._pair("DEPTH=3", rows()["env"]) == ("DEPTH", "3")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("qos=long", "long"),
        ("nodelist=n[1-2]", "n[1-2]"),
        ("exclusive=true", True),
        ("nice=7", "7"),
        ("mem=1e3", "1e3"),
    ],
)
def test_a_directive_is_text_or_a_bare_flag(text: str, value: object) -> None:
    assert job_flags._pair(text, rows()["directives"])[1] == value
