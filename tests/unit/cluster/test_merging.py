from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import each
from trainjob.cluster.faults import JobError
from trainjob.cluster.job import Job
from trainjob.cluster.merging import merge_job
from trainjob.contract.settings import EXCLUSIVE


@pytest.fixture
def job_file(tmp_path: Path) -> Any:
    """Return a function that writes a job file and returns its path."""

    def write(text: Any) -> Any:
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return path

    return write


def test_nothing_asked_is_all_defaults() -> None:
    asked = merge_job(None, {"instances": None, "env": {}, "command": [], "set": {}})
    assert asked.job == Job()
    assert asked.origins == {}


def test_flags_override_the_file_and_each_setting_knows_its_origin(job_file: Any) -> None:
    path = job_file("instances: 4\nmicro_batch: 8\nseed: 7\n")
    asked = merge_job(path, {"instances": 2, "learning_rate": 0.1, "micro_batch": None})
    assert (asked.job.instances, asked.job.micro_batch, asked.job.learning_rate, asked.job.seed) == (2, 8, 0.1, 7)
    assert asked.origins == {
        "instances": "flag --instances",
        "micro_batch": "job file mine.yaml",
        "seed": "job file mine.yaml",
        "learning_rate": "flag --learning-rate",
    }


@pytest.mark.parametrize(
    ("in_file", "flags", "expected"),
    [
        ("hosts: 2-8\n", {}, (8, 2)),
        ("", {"hosts": "2-8"}, (8, 2)),
        ("hosts: 2-8\n", {"hosts": 4}, (4, None)),
        ("hosts: 4\n", {"hosts": "2-3"}, (3, 2)),
        ("hosts: 8\n", {"least_hosts": 2}, (8, 2)),
    ],
)
def test_a_range_of_hosts_is_one_value(job_file: Any, in_file: str, flags: Any, expected: Any) -> None:
    job = merge_job(job_file(in_file or "seed: 1\n"), flags).job
    assert (job.hosts, job.least_hosts) == expected


@pytest.mark.parametrize("text", ["2-", "-2", "2-x", "two"])
def test_what_is_no_range_is_refused_with_its_line(job_file: Any, text: str) -> None:
    with pytest.raises(JobError, match=r"mine\.yaml:1: hosts: "):
        merge_job(job_file(f'hosts: "{text}"\n'), {})


def test_falsy_flags_were_given(job_file: Any) -> None:
    asked = merge_job(job_file("eight_bit_io: true\nseed: 3\n"), {"eight_bit_io": False, "seed": 0, "momentum": 0.0})
    assert (asked.job.eight_bit_io, asked.job.seed, asked.job.momentum) == (False, 0, 0.0)
    assert asked.origins["seed"] == "flag --seed"


def test_options_and_environment_are_merged_name_by_name(job_file: Any) -> None:
    path = job_file("set: {width: 1, depth: 2}\nenv: {A: 3.10, B: x}\n")
    asked = merge_job(path, {"set": {"width": 100}, "env": {"B": "y", "C": ""}})
    assert asked.job.set == {"width": 100, "depth": 2}
    assert asked.job.env == {"A": "3.10", "B": "y", "C": ""}
    assert asked.origins == {
        "set.width": "flag --set width",
        "set.depth": "job file mine.yaml",
        "env.A": "job file mine.yaml",
        "env.B": "flag --env B",
        "env.C": "flag --env C",
    }


VALUES = {
    "task": "ffnet-toy",
    "command": ["ls", "-l"],
    "accumulation": 2,
    "global_batch": 64,
    "epochs": 3,
    "updates": 10,
    "compile_first": True,
    "compile_only": True,
}


@pytest.mark.parametrize(("in_file", "flag"), [order for pair in EXCLUSIVE for order in (pair, pair[::-1])])
def test_a_flag_puts_its_partner_in_the_file_aside(job_file: Any, in_file: Any, flag: Any) -> None:
    asked = merge_job(job_file(f"{in_file}: {VALUES[in_file]}\n"), {flag: VALUES[flag]})
    assert getattr(asked.job, in_file) is None
    assert getattr(asked.job, flag) == VALUES[flag]
    assert list(asked.origins) == [flag]


def test_a_command_may_come_as_a_tuple() -> None:
    asked = merge_job(None, {"command": ("python", "a.py")})
    assert asked.job.command == ["python", "a.py"]
    assert asked.origins == {"command": "flag -- command"}


def test_a_key_without_a_value_in_the_file_was_not_given(job_file: Any) -> None:
    asked = merge_job(job_file("instances:\nhosts: 2\n"), {})
    assert asked.job.instances is None
    assert asked.origins == {"hosts": "job file mine.yaml"}


FLAG_MESSAGES = {
    "type": ({"instances": "2"}, '--instances: read "2", expected a whole number'),
    "choice": ({"remainder": "dorp"}, "--remainder: read \"dorp\", expected 'drop' or 'pad'"),
    "dashes": ({"bucket_mb": 0}, "--bucket-mb: read 0, expected at least 1"),
    "pair": (
        {"accumulation": 1, "global_batch": 2},
        "--global-batch: excludes accumulation, and both are given: give one of them",
    ),
    "task and command": (
        {"task": "x", "command": ["ls"]},
        "-- command: excludes task, and both are given: give one of them",
    ),
    "env": (
        {"env": {"RANK": "1"}},
        "--env RANK: RANK is set by the launcher, to a different value for each rank: take it out",
    ),
    "surrogate": ({"env": {"A": "\udce9"}}, '--env A: read "\\udce9", expected text of whole Unicode characters'),
    "set": (
        {"set": {"a": None}},
        "--set a: read nothing, expected text or a whole number or a number or true or false",
    ),
    "word": ({"command": ["ls", "\0"]}, '-- command, word 2: read "\\u0000", expected text without the character NUL'),
    "name": ({"name": "a/b"}, '--name: read "a/b", expected one line of at most 200 characters without a slash'),
    "no flag": ({"instnces": 1}, "--instnces: is not a key: is instances meant?"),
}


@each(("flags", "message"), FLAG_MESSAGES.values())
def test_what_is_wrong_with_a_flag_names_the_flag(flags: Any, message: Any) -> None:
    with pytest.raises(JobError) as caught:
        merge_job(None, flags)
    assert str(caught.value).startswith(message)


def test_all_wrong_flags_are_reported_at_once() -> None:
    with pytest.raises(JobError) as caught:
        merge_job(None, {"instances": "2", "epochs": 0})
    assert [line.split(":")[0] for line in str(caught.value).split("\n")] == ["--instances", "--epochs"]


def test_what_is_wrong_in_the_file_names_file_and_line_even_where_a_flag_overrides(job_file: Any) -> None:
    path = job_file("seed: 1\ninstances: four\n")
    with pytest.raises(JobError) as caught:
        merge_job(path, {"instances": 2})
    assert str(caught.value) == f'{path}:2: instances: read "four", expected a whole number'
