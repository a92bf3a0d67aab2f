"""The expression of a job file that finds a command's progress."""

from __future__ import annotations

import pytest

from trainjob.cluster.job import Job
from trainjob.contract.forms import parse_pattern
from trainjob.planning.rules import Broken
from trainjob.planning.work import task_facts


def test_an_expression_that_finds_an_update_is_taken() -> None:
    match = parse_pattern(r"step (?P<update>\d+)/(?P<total>\d+)").search("step 5/10")
    assert match is not None
    assert match.groupdict() == {"update": "5", "total": "10"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("step (", "no regular expression"),
        (r"step (\d+)", "expected a group named update"),
        (r"step (?P<update>\d+) (?P<grad>\d+)", "group grad is not one of update, total"),
    ],
)
def test_any_other_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_pattern(text)


def test_a_task_has_none() -> None:
    with pytest.raises(Broken, match="progress is step"):
        task_facts(Job.of({"task": "digits-cnn", "progress": r"step (?P<update>\d+)"}))
