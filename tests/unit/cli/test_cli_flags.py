"""The table of flags, which stands for pydantic's model without importing it."""

from __future__ import annotations

import importlib
import typing

import pytest

from trainjob.cli import job_flags
from trainjob.cli.lazy import COMMANDS
from trainjob.cluster.job import Job

OF_THEIR_OWN = {"command", "set", "env", "poprun"}


def test_every_field_of_a_job_has_a_flag() -> None:
    assert set(job_flags.FIELDS) == set(Job.model_fields) - OF_THEIR_OWN


def plain(annotation: object) -> type:
    """Return int of Annotated[int, …] | None, and str of a choice of words."""
    inner = [one for one in typing.get_args(annotation) if one is not type(None)]
    if isinstance(annotation, type):
        return annotation
    return type(inner[0]) if typing.get_origin(annotation) is typing.Literal else plain(inner[0])


@pytest.mark.parametrize("field", job_flags.FIELDS)
def test_a_flag_has_the_type_of_its_field(field: str) -> None:
    assert job_flags.FIELDS[field][0] is plain(Job.model_fields[field].annotation)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_says_of_itself_what_the_table_says(command: str) -> None:
    app = importlib.import_module(f"trainjob.cli.{command}").app
    said = app.info.help if isinstance(app.info.help, str) else app.registered_commands[0].callback.__doc__
    assert said.startswith(COMMANDS[command].removesuffix("."))


@pytest.mark.parametrize(
    ("text", "value"),
    [("width=100", 100), ("rate=1e-3", 0.001), ("deep=true", True), ("name=a=b", "a=b"), ("empty=", "")],
)
def test_an_option_of_a_task_has_the_type_that_it_is_written_in(text: str, value: object) -> None:
    assert list(dict([job_flags._pair(text, "set")]).values()) == [value]


def test_a_variable_stays_text() -> None:
    assert job_flags._pair("DEPTH=3", "env") == ("DEPTH", "3")
