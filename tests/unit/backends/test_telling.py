"""Whom a back end asks: the job script of a run, its ranks, or those of one element, and nobody else."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.run_folders import GONE, made, recorded
from trainjob.backends import detached
from trainjob.backends.base import Answer, Liveness
from trainjob.backends.slurm import asking, backend, packs, steps
from trainjob.contract import package
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.machines import processes
from trainjob.machines.slurm import commands

NATIVE = {"job_id": "7", "folder": "/runs/abcd", "host": None, "user": None, "slurm_conf": None}


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Return the words of each call of Slurm's programs; the run has three steps."""
    words: list[tuple[str, ...]] = []
    monkeypatch.setattr(commands, "call", lambda _, asked, **__: words.append(tuple(asked)))
    monkeypatch.setattr(backend, "scancel", lambda _, asked, __: words.append(("scancel", *asked)))
    monkeypatch.setattr(steps, "steps_of", lambda _: ["7.1", "7.2", "7.3"])
    return words


def ranks(module: Any, native: dict[str, Any], name: str = "TERM") -> Callable[[RunPaths], None]:
    return lambda paths: module.signal_ranks(paths, native, name)


def script(module: Any, native: dict[str, Any]) -> Callable[[RunPaths], None]:
    return lambda _: module.interrupt(native)


ELEMENT = {**NATIVE, "element": 3}


@pytest.mark.parametrize(
    ("tell", "told"),
    [
        (script(steps, NATIVE), ["--signal=USR1 7.1"]),
        (ranks(steps, NATIVE), ["--signal=TERM 7.2", "--signal=TERM 7.3"]),
        (script(backend, NATIVE), ["--batch --signal=USR1 7"]),
        (ranks(backend, NATIVE, "INT"), ["--signal=INT 7"]),
        (script(packs, NATIVE), ["--batch --signal=USR1 7"]),
        (ranks(packs, NATIVE), ["--signal=TERM 7"]),
        (script(packs, ELEMENT), ["--signal=USR1 7.1", "--signal=USR1 7.2", "--signal=USR1 7.3"]),
        (ranks(packs, ELEMENT, "KILL"), ["--signal=KILL 7.1", "--signal=KILL 7.2", "--signal=KILL 7.3"]),
    ],
)
def test_a_signal_reaches_those_that_are_meant(
    tmp_path: Path, called: list[tuple[str, ...]], tell: Callable[[RunPaths], None], told: list[str]
) -> None:
    tell(RunPaths(tmp_path))
    assert called == [("scancel", *words.split()) for words in told]


def test_the_newest_job_of_a_run_is_told(tmp_path: Path, called: list[tuple[str, ...]]) -> None:
    paths = RunPaths(tmp_path)
    paths.job_id.write_text("9\n")
    backend.signal_ranks(paths, NATIVE, "TERM")
    assert called == [("scancel", "--signal=TERM", "9")]


def test_the_job_of_a_step_and_of_an_element_is_known(called: list[tuple[str, ...]]) -> None:
    assert steps.identify(NATIVE) == {"job_id": "7"}
    assert packs.identify(ELEMENT) == backend.identify(NATIVE)
    assert called == []


@pytest.mark.parametrize(("attempt", "left", "is_found"), [("", [], False), ("1", [], True), ("", ["7.1"], True)])
def test_a_step_whose_submission_was_cut_short_is_known_by_its_attempt_or_by_squeue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attempt: str, left: list[str], is_found: bool
) -> None:
    paths = made(tmp_path, "abcd", state=None, native=None, backend="steps", inside="7")
    if attempt:
        paths.attempt.write_text(attempt)
    monkeypatch.setattr(steps, "steps_of", lambda _: left)
    found = steps.look_for(paths, recorded(paths))
    assert (found is not None and found["job_id"]) == (is_found and "7")
    assert steps.look_for(paths, recorded(paths).replace(inside=None)) is None


def test_a_step_starts_at_once_on_the_first_node_and_has_two_minutes_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = made(tmp_path, "abcd", native=None, backend="steps", inside="7")
    asked: list[Any] = []
    limits_s: list[float] = []

    def call(_: object, words: tuple[str, ...], *, program: str, timeout_s: float) -> None:
        asked.append((program, words))
        limits_s.append(timeout_s)

    monkeypatch.setattr(commands, "call", call)
    monkeypatch.setattr(package, "program_command", lambda *words, interpreter: (interpreter, *words[1:]))
    native = steps.start(paths, recorded(paths))
    words = steps.argv(paths, recorded(paths).script, inside="7")
    assert asked == [("srun", ("bash", "start_step", str(paths.folder), "1", "7", "abcd", "120", *words))]
    assert limits_s == [120 + commands.MARGIN_S]
    assert native == {**native, "job_id": "7", "folder": str(paths.folder)}
    assert {"--overlap", "--jobid=7", "--relative=0", "--mem=0"} <= set(words)
    assert words[-1] == "job.sh"
    with pytest.raises(UserError, match="a run inside an allocation starts at once"):
        steps.argv(paths, "job.sh", after=[paths], inside="7")
    with pytest.raises(UserError, match="is an array, whose elements are jobs of their own"):
        steps.start_elements(paths, None, None, {})


@pytest.mark.parametrize("name", ["TERM", "USR1"])
def test_ranks_on_this_machine_get_a_signal_and_the_script_term_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    told: list[Any] = []

    def kill(pid: int, number: int) -> None:
        told.append((pid, number))
        if pid == 6:
            raise ProcessLookupError

    monkeypatch.setattr(processes, "ranks_of", lambda folder: [5, 6, 7] if folder == str(tmp_path) else [])
    monkeypatch.setattr(processes, "running", lambda _, scripts, signal: told.append((scripts[0].pid, signal)))
    monkeypatch.setattr(os, "kill", kill)
    detached.signal_ranks(RunPaths(tmp_path), GONE, name)
    of_ranks = [(pid, getattr(signal, f"SIG{name}")) for pid in (5, 6, 7)]
    assert told == of_ranks + ([(GONE["pid"], "TERM")] if name == "TERM" else [])


def test_what_is_said_of_a_waiting_job_is_not_said_of_an_element_that_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = Answer(Liveness.ALIVE, "PENDING")
    gone = Answer(Liveness.GONE, "FAILED")
    monkeypatch.setattr(asking, "ask", lambda natives: [said, said, gone])
    whole, waits, ended = packs.ask([NATIVE, ELEMENT, ELEMENT])
    assert (whole.state, waits.state, ended.state) == ("PENDING", None, "FAILED")
