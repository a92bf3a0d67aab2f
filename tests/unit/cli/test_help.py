"""--help of every command: two examples each, whose flags the command has."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from trainjob.cli.command import Command
from trainjob.cli.main import COMMANDS, load, main


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


def test_help_has_the_settings_that_people_use_first_and_says_how_to_see_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    texts = []
    for word in ("--help", "--help-all"):
        with pytest.raises(SystemExit) as ended:
            main(("submit", word))
        assert ended.value.code == 0
        texts.append(capsys.readouterr().out)
    short, whole = texts
    assert ("--instances" in short, "--exit-grace-s" in short) == (True, False)
    assert "more settings of a job: trainjob submit --help-all" in short
    assert ("--exit-grace-s" in whole, "more settings of a job" in whole) == (True, False)
    assert len(short.splitlines()) < 80 < len(whole.splitlines())


def test_options_without_an_effect_are_not_taken() -> None:
    bench: Any = load("bench")
    flags = {name: {flag for one in command.params for flag in one.opts} for name, command in bench.commands.items()}
    assert "--epochs" not in flags["scaling"]
    assert "--learning-rate" not in flags["collective"]
    assert "--workers" not in flags["loader"]
    assert "--cluster" in flags["scaling"]


@pytest.mark.parametrize(
    ("words", "code", "shown"),
    [
        ((), 2, ["Take one training job from a laptop", "-h, --help", "Plan:"]),
        (("cluster",), 2, ["List, show, create and check cluster files.", "accept", "Write clusters/NAME.yaml"]),
        (("wait", "-h"), 0, ["wait [OPTIONS] RUN…", "Positional arguments:", "Run ids", "Options:", "Examples:"]),
        (("plan", "--help"), 0, ["[OPTIONS] [-- COMMAND…]", "Options:", "cluster use", "What runs:", "--epochs"]),
        (("list", "--limit", "0"), 2, ["Try 'trainjob list --help' for help.", "0 is not in the range x>=1"]),
        (("pln",), 2, ["No such command 'pln'. Did you mean 'plan'?"]),
        (("plan", "--instnces", "2"), 2, ["--instnces", "--instances"]),
    ],
)
def test_what_help_and_mistakes_print(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int, shown: list[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    text = "".join(capsys.readouterr())
    assert ended.value.code == code
    places = [text.find(part) for part in shown]
    assert -1 not in places
    assert places == sorted(places)


def test_of_options_that_are_alike_the_nearest_alone_is_proposed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(("plan", "--instence", "2"))
    told = capsys.readouterr().err
    assert "--instances" in told
    assert "--hint" not in told
