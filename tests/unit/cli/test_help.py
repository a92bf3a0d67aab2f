"""--help of every command: two examples each, whose flags the command has."""

from __future__ import annotations

import importlib
import shlex
from typing import Any

import pytest
import typer.main

from trainjob.cli.app import Command
from trainjob.cli.lazy import COMMANDS


def _commands() -> list[Any]:
    found = []
    for name in COMMANDS:
        command: Any = typer.main.get_command(importlib.import_module(COMMANDS[name]).app)
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
    title, *lines = (command.epilog or "").splitlines()
    assert (title, len(lines)) == ("Examples:", 2)
    flags = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    for line in lines:
        words = shlex.split(line)
        own = words[: words.index("--")] if "--" in words else words
        assert " ".join(words).startswith(f"trainjob {request.node.callspec.id}")
        assert {word for word in own if word.startswith("-")} <= flags


def test_options_without_an_effect_are_not_taken() -> None:
    bench: Any = typer.main.get_command(importlib.import_module("trainjob.cli.prove.bench").app)
    flags = {name: {flag for one in command.params for flag in one.opts} for name, command in bench.commands.items()}
    assert "--epochs" not in flags["scaling"]
    assert "--learning-rate" not in flags["collective"]
    assert "--workers" not in flags["loader"]
    assert "--compile" not in flags["step"]
    assert "--cluster" in flags["scaling"]
