"""Arrays as Slurm writes them, and sweeps: what each task has of its own, and what is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import each
from trainjob.cluster import slurm_text
from trainjob.cluster.faults import JobError
from trainjob.cluster.job import Job
from trainjob.cluster.reading import items_from_text, text_of
from trainjob.render.elements import SHARED, Variation, job_of_element


@pytest.mark.parametrize(
    ("text", "numbers", "at_once", "written"),
    [
        ("0-3", (0, 1, 2, 3), None, "0-3"),
        ("0-9:3%2", (0, 3, 6, 9), 2, "0,3,6,9%2"),
        ("7,1,3-4", (1, 3, 4, 7), None, "1,3-4,7"),
        ("5", (5,), None, "5"),
        ("2,0-2,1", (0, 1, 2), None, "0-2"),
    ],
)
def test_an_array_is_read(text: str, numbers: tuple[int, ...], at_once: int | None, written: str) -> None:
    found = slurm_text.parse_array(text)
    assert (found.numbers, found.at_once, found.text) == (numbers, at_once, written)


@given(st.sets(st.integers(0, 50), min_size=1))
def test_numbers_come_back_from_their_ranges(numbers: set[int]) -> None:
    assert slurm_text.parse_array(slurm_text.ranges(sorted(numbers))).numbers == tuple(sorted(numbers))


@each(
    ("text", "message"),
    [
        ("", "expected the elements of an array as Slurm writes them"),
        ("a-b", 'read "a-b", expected the elements'),
        ("0-3;x", 'read "0-3;x", expected the elements'),
        ("1,,2", "expected the elements"),
        ("-3", "expected the elements"),
        ("0-3%", "expected the elements"),
        ("0-3%0", "which lets no element run: leave %0 out, or give at least %1"),
        ("5-2", 'read "5-2", which ends before it begins: is 2-5 meant?'),
        ("0-4:0", "a step is at least 1"),
        ("0-4000001", "the largest number of an element is 4000000"),
        ("0-10000", "has 10001 elements, and an array may have 10000: submit it in parts"),
    ],
)
def test_what_is_no_array_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"read|has") as caught:
        slurm_text.parse_array(text)
    assert message in str(caught.value)


def read(folder: Path, text: str) -> list[Variation]:
    path = folder / "sweep.yaml"
    path.write_text(text)
    return items_from_text(text_of(path, "sweep.yaml", JobError), Variation, "sweep.yaml")


def test_an_item_overrides_the_job_as_flags_do(tmp_path: Path) -> None:
    (item,) = read(tmp_path, "- {updates: 5, set: {width: 8}, env: {N: 3.10}}")
    job = job_of_element(Job(epochs=3, set={"depth": 2}, env={"A": "a"}), item, "here")
    assert (job.epochs, job.updates, job.set, job.env) == (None, 5, {"depth": 2, "width": 8}, {"A": "a", "N": "3.10"})


def test_arguments_follow_the_command_as_written(tmp_path: Path) -> None:
    (item,) = read(tmp_path, '- arguments: [--lr, 1e-3, "$(date)", ""]')
    job = job_of_element(Job(command=["python", "train.py"]), item, "here")
    assert job.command == ["python", "train.py", "--lr", "1e-3", "$(date)", ""]


@pytest.mark.parametrize("key", SHARED)
def test_what_all_tasks_share_is_refused_with_its_line(tmp_path: Path, key: str) -> None:
    values = {
        "command": "[x]",
        "poprun": "{x: 1}",
        "environment": "{venv: /x}",
        "directives": "{x: 1}",
        "array": "'1'",
        "pack": "2",
        "compile_first": "true",
        "compile_only": "true",
        "hint": "multithread",
        "command_per": "node",
        "progress": "'step (?P<update>[0-9]+)'",
        "on_stall": "end",
        "once": "{job: [{run: [x]}]}",
        "retry": "{mem: +50%}",
        "roles": "{server: {command: [x], ready: 'file:up'}, train: {needs: [server]}}",
    }
    values |= dict.fromkeys(("instances", "replicas", "ipus_per_replica", "hosts", "least_hosts", "max_attempts"), "2")
    values |= dict.fromkeys(("exit_grace_s", "idle_timeout_s"), "2")
    with pytest.raises(JobError, match=rf"sweep.yaml:2: {key}: is the same for all elements of an array"):
        read(tmp_path, f"- seed: 1\n- {key}: {values.get(key, chr(39) + '1:00' + chr(39))}\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "sweep.yaml:1: expected a list with an item for each element, such as - learning_rate: 0.1"),
        ("learning_rate: 1", "sweep.yaml:1: expected a list"),
        ("[]", "sweep.yaml:1: expected a list"),
        ("- 5", "sweep.yaml:1: holds one value at its top"),
        ("- {seed: 1}\n- {learning_rat: 1}", "sweep.yaml:2: learning_rat: is not a key: is learning_rate meant?"),
        (
            "- {seed: x}\n- {momentum: 2}",
            'sweep.yaml:1: seed: read "x", expected a whole number\nsweep.yaml:2: momentum',
        ),
        ("- {seed: 1", "this is not YAML"),
        ("- {seed: 1}\n- {seed: 1, seed: 2}", "sweep.yaml:2: seed: is given twice"),
    ],
)
def test_a_sweep_that_cannot_be_read(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(JobError) as caught:
        read(tmp_path, text)
    assert message in str(caught.value)


def test_a_task_that_breaks_a_rule_of_jobs_is_named() -> None:
    with pytest.raises(
        JobError, match=r"s.yaml, task 3: arguments: follow a command of your own, and the job has a task"
    ):
        job_of_element(Job(), Variation(arguments=["x"]), "s.yaml, task 3")
