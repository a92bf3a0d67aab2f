"""The steps of `once` and the shares of `retry`, as a job file states them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.cases import each
from trainjob.cluster.faults import JobError
from trainjob.cluster.reading import job_from_text
from trainjob.contract.steps import Retry, parse, parse_retry

MISTAKES = [
    ("job: [{timeout_s: 5}]", "job[0] has neither run nor shell"),
    ("job: [{run: [a], shell: b}]", "job[0] has both run and shell"),
    ("node: [{run: [a]}, {run: hf download x}]", "node[1].run is 'hf download x', expected a list of words"),
    ("node: [{run: []}]", "node[0].run is [], expected a list of words"),
    ('job: [{shell: " "}]', "job[0].shell is ' ', expected a line for bash"),
    ("job: [{run: [a], timeout_s: 0}]", "job[0].timeout_s is 0.0, expected seconds, more than 0"),
    ("job: [{run: [a], name: two words}]", "job[0].name is 'two words', expected letters"),
    ("job: [{run: [a], lock: cache/lock}]", "job[0].lock is 'cache/lock', expected the whole path"),
    ("job: [{command: [a]}]", 'read "command", expected run, shell, name, timeout_s or lock'),
    ("jobs: [{run: [a]}]", 'read "jobs", expected job or node'),
]


@each(("once", "message"), MISTAKES)
def test_a_step_that_cannot_run_is_refused_with_its_line(once: str, message: str) -> None:
    with pytest.raises(JobError, match=f"mine.yaml:2: .*{re.escape(message)}"):
        job_from_text(f"command: [python, train.py]\nonce: {{{once}}}\n", "mine.yaml")


def test_words_stay_words_and_only_a_shell_line_is_for_bash() -> None:
    stated: dict[str, list[dict[str, Any]]] = {
        "node": [{"run": ["/opt/cp", "$HOME; rm -rf /", "a b"]}],
        "job": [{"shell": "echo $HOME", "timeout_s": 5}],
    }
    job, node = parse(stated)
    assert (node.command, node.name, node.timeout_s) == (["/opt/cp", "$HOME; rm -rf /", "a b"], "cp", 3600)
    assert (job.command, job.name, job.timeout_s) == (["bash", "-c", "echo $HOME"], "shell", 5)
    assert [str(step) for step in (job, node)] == ["step shell (once.job)", "step cp (once.node)"]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"mem": "50%"}, "mem is 50%, expected a share to add"),
    ({"time": "+0%"}, "time is +0%, expected a share to add"),
    ({"attempts": 2}, "says neither mem nor time"),
    ({"mem": "+50%", "attempts": 0}, "attempts is 0, expected a whole number, at least 1"),
]


@pytest.mark.parametrize(("stated", "message"), REFUSED)
def test_a_retry_that_asks_for_nothing_is_refused(stated: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_retry(stated)


def test_a_retry_is_one_attempt_unless_more_are_stated() -> None:
    assert parse_retry({"mem": "+50%"}) == Retry(50, None, 1)
    assert parse_retry({"time": "+100%", "attempts": 3}) == Retry(None, 100, 3)
