"""One shape for problems, warnings, refusals and errors, and one "did you mean"."""

from __future__ import annotations

import pickle

import pytest

from tests.support.printed_json import reported
from trainjob.cli import failures
from trainjob.cluster.faults import ClusterError, JobError
from trainjob.cluster.merging import merge_job
from trainjob.contract.errors import Problem, ProblemsError, UserError, did_you_mean, joined, nearest, of_error
from trainjob.kinds.lookup import cluster_from_text
from trainjob.planning.rules import Refusal


@pytest.mark.parametrize(
    ("text", "cure", "whole"),
    [
        ("hosts is 9, the cluster has 4", "take --hosts 4", "hosts is 9, the cluster has 4: take --hosts 4"),
        ("it is not there", "Make it", "it is not there. Make it"),
        ("is it up?", "Start it", "is it up? Start it"),
        ("nothing helps", "", "nothing helps"),
        ("its last line:\n  | out of paper\n", "Add some", "its last line:\n  | out of paper\nAdd some"),
    ],
)
def test_an_error_reads_as_text_and_cure(text: str, cure: str, whole: str) -> None:
    assert joined(text, cure) == str(UserError(text, cure)) == str(Problem("a-code", text, cure)) == whole


def test_parts_survive_in_json_and_in_another_process() -> None:
    error = JobError("micro_batch is 0", "give at least 1", "count")
    assert error.as_json() == {
        "error": "micro_batch is 0: give at least 1",
        "code": "count",
        "severity": "error",
        "where": "",
        "text": "micro_batch is 0",
        "cure": "give at least 1",
    }
    assert pickle.loads(pickle.dumps(error)).as_json() == error.as_json()
    assert JobError("x").problem.code == "job"
    assert Refusal("a rule", "1, not 2", "Take 2.").problem.code == "refused"
    assert of_error("secrets", error) == Problem("secrets", "micro_batch is 0", "give at least 1")


def test_several_problems_are_one_error_that_lists_them() -> None:
    problems = [Problem("a", "this", "Mend it"), Problem("b", "that")]
    error = ProblemsError.of_all(problems, "; ")
    assert str(error) == "this. Mend it; that"
    assert [problem["code"] for problem in error.as_json()["problems"]] == ["a", "b"]
    assert ProblemsError.of_all(problems[:1]).as_json() == {
        "error": "this. Mend it",
        "code": "a",
        "severity": "error",
        "where": "",
        "text": "this",
        "cure": "Mend it",
    }


def test_each_fault_of_a_file_and_of_flags_has_its_own_cure() -> None:
    with pytest.raises(ClusterError) as refused:
        cluster_from_text("kind: slurm\nnodes: {count: 1, cpus: 1}\ntim_limit: 90\npython: 3.10\n", "c.yaml")
    assert str(refused.value) == "\n".join(str(problem) for problem in refused.value.problems)
    assert refused.value.as_json()["problems"] == [
        {
            "code": "cluster",
            "severity": "error",
            "where": "c.yaml:3",
            "text": "c.yaml:3: tim_limit: is not a key",
            "cure": "is time_limit meant?",
        },
        {
            "code": "cluster",
            "severity": "error",
            "where": "c.yaml:4",
            "text": "c.yaml:4: python: read 3.10, expected text",
            "cure": 'quote it, "3.10"',
        },
    ]
    with pytest.raises(JobError) as refused_flags:
        merge_job(None, {"array": "3-1", "env": {"RANK": "1"}})
    assert [(problem.text, problem.cure) for problem in refused_flags.value.problems] == [
        ("--env RANK: RANK is set by the launcher, to a different value for each rank", "take it out"),
        ('--array: read "3-1", which ends before it begins', "is 1-3 meant?"),
    ]


def test_json_of_the_command_line_has_the_parts(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end, failures.handled(["plan", "--json"]):
        raise UserError("no such host", "name another", "host")
    answer = reported(capsys.readouterr().out)
    assert (end.value.code, answer["error"]) == (1, "no such host: name another")
    assert (answer["code"], answer["text"], answer["cure"]) == ("host", "no such host", "name another")


def test_the_nearest_name_ignores_case_and_dashes() -> None:
    assert nearest("Micro-Batch", ["micro_batch", "global_batch"]) == "micro_batch"
    assert nearest("zebra", ["micro_batch"]) is None
    assert did_you_mean("digit-cnn", ["digits-cnn"]) == "did you mean digits-cnn? "
    assert did_you_mean("zebra", ["digits-cnn"]) == ""
