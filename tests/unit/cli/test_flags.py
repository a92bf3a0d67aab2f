"""Every setting is a flag, made from its row."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cases import each
from trainjob.cli.job_flags import pair
from trainjob.cli.main import COMMANDS, HEADINGS, load
from trainjob.contract.settings import SettingRow, rows

FLAGS = [row for row in rows().values() if row.name != "command" and not row.facts.file_only]


def test_only_steps_and_roles_have_no_flag() -> None:
    assert {row.name for row in rows().values()} - {row.name for row in FLAGS} == {"command", "once", "roles"}
    assert not {"once", "roles"} & {parameter.name for parameter in load("plan").params}


@each("row", FLAGS)
def test_every_setting_is_a_flag_with_its_help_and_default(row: SettingRow) -> None:
    option: Any = next(parameter for parameter in load("plan").params if parameter.name == row.name)
    is_word = row.is_mapping or row.choices or row.facts.form in ("host-count", "updates-or-auto")
    kinds = {str: "str", int: "int", float: "float", bool: "boolean"}
    assert option.type.name == ("str" if is_word else kinds[row.type])
    assert option.multiple == row.is_mapping
    assert option.rich_help_panel == row.facts.group
    assert option.help.startswith(row.facts.help)
    assert option.help.endswith(f" Default: {row.default_in_words}.")
    assert all(choice in option.help for choice in row.choices)


@each("command", COMMANDS)
def test_a_command_says_of_itself_what_the_table_says(command: str) -> None:
    output = load(command).help or ""
    helps = {name: text for commands in HEADINGS.values() for name, text in commands.items()}
    assert output.startswith(helps[command].removesuffix("."))


@pytest.mark.parametrize(
    ("text", "value"),
    [("width=100", 100), ("rate=1e-3", 0.001), ("deep=true", True), ("name=a=b", "a=b"), ("empty=", "")],
)
def test_an_option_of_a_task_has_the_type_that_it_is_written_in(text: str, value: object) -> None:
    assert list(dict([pair(text, rows()["set"])]).values()) == [value]


def test_a_variable_stays_text() -> None:
    assert pair("DEPTH=3", rows()["env"]) == ("DEPTH", "3")


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
    assert pair(text, rows()["directives"])[1] == value
