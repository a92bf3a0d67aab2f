"""--help of every command: two examples each, whose flags the command has."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from trainjob.cli.command import Command
from trainjob.cli.main import COMMANDS, load


def _commands() -> list[Any]:
    found = []
    for name in COMMANDS:
        command: Any = load(name)
        inner = getattr(command, "commands", None)
        found += (
            [pytest.param(command, id=name)]
            if inner is None
            else [pytest.param(one, id=f"{name} {key}") for key, one in inner.items()]
        )
    return found


@pytest.mark.parametrize("command", _commands())
def test_every_command_has_two_examples_with_flags_that_it_has(command: Any, request: pytest.FixtureRequest) -> None:
    assert isinstance(command, Command)
    assert len(command.examples) == 2
    flags = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    for line in command.examples:
        words = shlex.split(line)
        own = words[: words.index("--")] if "--" in words else words
        assert " ".join(words).startswith(f"trainjob {request.node.callspec.id}")
        assert {word for word in own if word.startswith("-")} <= flags


def test_options_without_an_effect_are_not_taken() -> None:
    bench: Any = load("bench")
    flags = {name: {flag for one in command.params for flag in one.opts} for name, command in bench.commands.items()}
    assert "--epochs" not in flags["scaling"]
    assert "--learning-rate" not in flags["collective"]
    assert "--workers" not in flags["loader"]
    assert "--cluster" in flags["scaling"]
