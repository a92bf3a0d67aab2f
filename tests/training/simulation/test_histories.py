"""Seeded histories of the real commands and job scripts in a simulated world, and the model of their protocol."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import planted_bugs
from simulation import protocol_model
from tests.support.programs import ran

_ROOT = Path(__file__).parents[3]
# What a script does last: it looks for a follow-up job whose answer was lost, drops one while the controller is away or
# it is killed, and submits one as it is cancelled. And what looks at the run see meanwhile.
AT_THE_END = (
    *(30422, 100586, 100630, 100750, 101097, 101448, 101497, 102740),
    *(200099, 200783, 202191, 202790, 210423, 500107, 1001004, 1100280),
)
# Histories that break an invariant once the mending of a fault is taken back: benchmarks/planted_bugs.yaml says which.
MENDED = (30, 34, 58, 84, 85, 93, 202, 210, 218, 286, 21242, 21303, 30204, 40232, 40334, 600721, 2052792, *AT_THE_END)
# What the checker took for a fault: a cancel that a dead script could not record, a stop that a full disk held up, a
# cancel of what was LOST already, interrupted submissions, and a controller that went down once faults were over.
EXCUSED = (400245, 600345, 700284, 700574, 700925, 701090, 701854)


def simulated(*words: str) -> subprocess.CompletedProcess[str]:
    # A process of its own: the histories put their own time, processes and files in the place of Python's.
    command = [sys.executable, "-m", "simulation", *words]
    return ran(command, folder=_ROOT)


@pytest.mark.parametrize(
    "which",
    [
        ("--seeds", "60"),
        ("--seeds", "10", "--about", "clocks that jump"),
        ("--seeds", "20", "--first", "2000", "--about", "old bytes"),
        ("--seeds", "20", "--about", "requests to stop"),
        ("--seeds", "15", "--about", "a rank fails on one of several nodes"),
        pytest.param(("--seeds", "100", "--first", "61"), marks=pytest.mark.full),
        pytest.param(("--seeds", "40", "--first", "2020", "--about", "old bytes"), marks=pytest.mark.full),
        pytest.param(("--seeds", "40", "--first", "21", "--about", "requests to stop"), marks=pytest.mark.full),
    ],
    ids=" ".join,
)
def test_histories_keep_every_invariant(which: tuple[str, ...]) -> None:
    ended = simulated(*which)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("program", "about", "seeds"),
    [
        ("task", "", MENDED + EXCUSED),
        # One empty list of squeue beside two lost answers is no proof that no follow-up job waits.
        ("task", "resumed while its job waits again", (11,)),
        ("task", "cancelled with its node", (38,)),  # What it has confirmed needs no answer of the controller any more.
        # A look asks its host's storage anew, and calls no run LOST that has just ended.
        ("task", "old bytes", (2182, 2466)),
        # A command that was killed while it removed a stale lock is in nobody's way, and a dead node's job is requeued
        # minutes after its script has recorded a failure.
        ("task", "removing", (605, 2)),
        # A script that got no answer took a requeue for the end; and a real Slurm changes no job that was cancelled as
        # it waited, when the script of a forgotten start ends.
        ("task", "", (2052003, 2002274)),
        ("saves at TERM alone", "", (2006523,)),
        # Ranks that a signal ended have reported the last update, and not saved it; and what was written down about a
        # job that was cancelled as it waited is not of the next one.
        ("requeues itself, and trains on", "", (2000800, 2001315, 2054640)),
        ("saves and ends with 0, and does not say of how many", "", (2007156,)),
        # What the checker took for a fault: ranks out of reach that saved the last update, and those that a request
        # reached as they did.
        ("requeues itself, and ends", "", (2004221, 2900055)),
    ],
)
def test_histories_that_broke_an_invariant_keep_it(program: str, about: str, seeds: tuple[int, ...]) -> None:
    ended = simulated("--seed", *map(str, seeds), "--about", about, "--program", program)
    assert "every invariant holds" in ended.stdout, ended.stdout[-4000:] + ended.stderr


def test_commands_see_the_jumps_of_the_clock_of_their_host() -> None:
    printed = simulated("--seed", "13", "--about", "clocks that jump").stdout
    ahead_s = {"login1": 0, "login2": -300}
    jumps, seen = 0, []
    for line in printed.splitlines():
        if jump := re.search(r"(login\d) +clock jumps +by ([+-]\d+) s", line):
            ahead_s[jump[1]] += int(jump[2])
            jumps += 1
        if began := re.search(r" begins +on (login\d)(?:, whose clock is ([+-]\d+) s off)?$", line):
            seen.append(int(began[2] or 0))
            assert seen[-1] == ahead_s[began[1]], line
    assert jumps >= 3
    assert {-255, 3555} <= set(seen)


def test_a_seed_gives_the_same_history_again() -> None:
    # But for the folder's own name, in which every process of the simulation is another.
    assert simulated("--seed", "82").stdout == simulated("--seed", "82").stdout


def test_without_bash_a_history_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    ended = simulated("--seed", "82")
    assert ended.returncode == 2
    assert "here is no bash" in ended.stderr


def test_a_theme_that_is_unknown_is_refused() -> None:
    ended = simulated("--seeds", "1", "--about", "lost node")
    assert ended.returncode == 2
    assert "lost nodes" in ended.stderr


def test_a_theme_that_no_seed_draws_is_given_to_those_that_are_named() -> None:
    words = ("--seed", "6", "--about", "two resumes")
    assert "theme  two resumes;" in simulated(*words).stdout
    assert "every invariant holds" in simulated(*words).stdout


@pytest.mark.parametrize(
    ("name", "invariant"),
    [
        ("the attempt is not counted on", "one attempt has one number"),
        ("asked and 0 is COMPLETED", "an attempt ends as what it was"),
    ],
)
def test_the_history_of_a_planted_bug_breaks_an_invariant(name: str, invariant: str) -> None:
    bug = next(one for one in planted_bugs.bugs() if one.bug == name)
    words = ["--seed", str(bug.seed), "--about", bug.about, "--program", bug.program]
    assert invariant in (planted_bugs.broken(bug, words) or "")


@pytest.mark.parametrize("program", ["requeues itself, and ends", "saves and ends with 0"])
def test_ranks_run_the_program_that_is_named(program: str) -> None:
    printed = simulated("--seed", "1", "--program", program).stdout
    assert f"; {program}; " in printed
    assert "its own" in printed


def test_the_whole_protocol_keeps_its_invariants() -> None:
    states, steps, why = protocol_model.explore()
    assert states > 100_000
    assert steps is None, f"{why}: {steps}"


@pytest.mark.parametrize("safeguard", protocol_model.SAFEGUARDS)
def test_without_a_safeguard_an_invariant_breaks(safeguard: str) -> None:
    assert protocol_model.explore(frozenset([safeguard]))[1] is not None


def test_commands_that_stay_keep_their_budget_of_calls() -> None:
    printed = ran(
        [sys.executable, "-m", "simulation.looks", "--runs", "4", "--minutes", "10"], folder=_ROOT, code=0
    ).stdout
    calls = [float(line.rpartition(":")[2]) for line in printed.splitlines() if line.startswith("  ")]
    # Of watch, wait, notify and one list: where nothing changes, and where the controller does not answer.
    most = [3.0, 3.0, 1.1, 1.0, 1.5, 1.5, 1.0, 1.0]
    assert [called <= allowed for called, allowed in zip(calls, most, strict=True)] == [True] * 8, printed
