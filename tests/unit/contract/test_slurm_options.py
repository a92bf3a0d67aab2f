"""The table of Slurm's options, and how words of a command line are read with it."""

from __future__ import annotations

import pytest

from tests.support.cases import each
from trainjob.contract.programs.slurm_options import (
    OPTIONS,
    STATED_BY,
    of_program,
    options_of_word,
    read_options,
    refusal,
)


def test_an_option_that_is_decided_elsewhere_says_where() -> None:
    assert set(STATED_BY) == {name for name, row in OPTIONS.items() if row.directive == "plan"}


def test_columns_have_only_known_words() -> None:
    assert {row.takes for row in OPTIONS.values()} == {"flag", "value", "optional", "flag/value"}
    assert {row.of for row in OPTIONS.values()} == {"sbatch", "srun", "both", "plugin"}
    assert all(row.directive if row.of != "srun" else not row.directive for row in OPTIONS.values())
    assert all(row.step if row.of != "sbatch" else not row.step for row in OPTIONS.values())
    letters = [row.short for row in OPTIONS.values() if row.short]
    assert len(letters) == len(set(letters))


@each(
    ("written", "program", "meant"),
    [
        ("ntasks_per_node", "sbatch", "ntasks-per-node"),
        ("workdir", "sbatch", "chdir"),
        ("gpu", "sbatch", "gpus"),
        ("time-limit", "sbatch", "time"),
        ("ntask-per-node", "srun", "ntasks-per-node"),
        ("requeue", "srun", ""),
        ("kill-on-bad-exit", "sbatch", ""),
        ("quantum", "sbatch", ""),
    ],
)
def test_a_name_that_a_program_refuses(written: str, program: str, meant: str) -> None:
    refused = refusal(written, program)
    assert refused is not None
    assert refused[1] == meant


@pytest.mark.parametrize(
    ("written", "program"), [("part", "sbatch"), ("tasks-per-node", "srun"), ("cpu_bind", "srun"), ("mine", "sbatch")]
)
def test_a_name_that_a_program_accepts(written: str, program: str) -> None:
    assert refusal(written, program, known=["mine"]) is None


def test_values_are_behind_an_equals_sign_in_the_next_word_or_joined() -> None:
    words = ["-N2", "-vQ", "-K1", "-c", "4", "--exclusive", "--time", "5", "--wait=3", "program", "--mem=1G"]
    read = [(name, value) for name, value, _ in read_options(words, "srun")]
    assert read == [
        *[("nodes", "2"), ("verbose", None), ("quiet", None), ("kill-on-bad-exit", "1"), ("cpus-per-task", "4")],
        *[("exclusive", None), ("time", "5"), ("wait", "3")],
    ]
    assert [following for _, _, following in read_options(words, "srun")][-1] == words.index("program")
    # A flag of sbatch, and an option with a value of srun's.
    assert options_of_word(["--wait", "3"], 0) == ([("wait", None)], 1)
    assert options_of_word(["--wait", "3"], 0, "srun") == ([("wait", "3")], 2)


def test_each_program_has_its_own_options() -> None:
    assert {"array", "requeue"} <= of_program("sbatch") - of_program("srun")
    assert {"mpi", "label"} <= of_program("srun") - of_program("sbatch")
