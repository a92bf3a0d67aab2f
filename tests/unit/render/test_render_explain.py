"""`--explain`: the very lines of the script, each with where its values came from."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from render_cases import HOSTILE, TEXT, cluster, explained_script, golden_requests, request, script

from trainjob.render.explain import beside
from trainjob.render.request import Request

REQUESTS = golden_requests()


def origins(asked: Request) -> dict[str, str]:
    """Return the origins of each line that has any."""
    return {line: found for line, found in beside(explained_script(asked)) if found}


def lines(asked: Request) -> str:
    return "\n".join(line for line, _ in beside(explained_script(asked)))


@pytest.mark.parametrize("name", REQUESTS)
def test_without_its_marks_it_is_the_script(name: str) -> None:
    assert lines(REQUESTS[name]) == script(REQUESTS[name])


@settings(max_examples=20, deadline=None)
@given(TEXT, TEXT)
def test_any_text_leaves_the_script_as_it_is(value: str, argument: str) -> None:
    asked = request(cluster(env={"VALUE": value}), command=["echo", argument, "\ue000", "\ue001"])
    assert lines(asked) == script(asked)


def test_text_that_holds_marks_keeps_its_own_origin() -> None:
    asked = request(command=["echo", "\ue000forged\ue001"], origins={"command": "flag -- command"})
    assert "flag -- command" in origins(asked)['  --parent "$$" "$TRAINJOB_RUN_DIR" -- echo \'\ue000forged\ue001\'']


@pytest.mark.parametrize("odd", ["a\nb", "a\rb", "\x1b[31mred"])
def test_an_origin_is_one_line_whatever_a_file_is_called(odd: str) -> None:
    asked = request(instances=2, origins={"instances": f"job file {odd}.yaml"})
    assert lines(asked) == script(asked)
    assert origins(asked)["  --instances 2 \\"] == f"job file {odd}.yaml".replace("\n", "?").replace("\r", "?").replace(
        "\x1b", "?"
    )


def test_flag_job_file_cluster_file_and_default_are_told_apart() -> None:
    found = origins(REQUESTS["local-command"])
    assert found["# 'mine on full'"] == "job file mine.yaml"
    assert found["export EPOCHS=3"] == "flag --env EPOCHS"
    assert found["export GREETING=mine"] == "job file mine.yaml"
    assert found["export OMP_NUM_THREADS=2"] == "cluster file full.yaml"
    assert found["  module load python/3.11"] == "cluster file full.yaml"
    assert found["  --instances 4 \\"] == "flag --instances"
    assert found["  --port 23456 \\"] == "cluster file full.yaml"
    assert found['  --secrets-file "$HOME"/.config/trainjob/secrets.env \\'] == "cluster file full.yaml"
    assert found["  --working-folder 'code/project/src/deep er' \\"] == "where the command was given"


def test_what_nobody_asked_for_is_a_default() -> None:
    found = origins(request())
    assert found["  --instances 1 \\"] == "default"
    assert found['if [[ -z "${TRAINJOB_PYTHON:-}" ]]; then TRAINJOB_PYTHON=python3; fi'] == "default"


def test_lines_without_values_have_no_origin() -> None:
    assert "set -euo pipefail" not in origins(request())


def test_several_origins_of_a_line_are_named_once_each() -> None:
    asked = request(command=["echo", "a", "b"], origins={"command": "flag -- command"})
    assert origins(asked)['  --parent "$$" "$TRAINJOB_RUN_DIR" -- echo a b'] == "flag -- command"


def test_hostile_words_do_not_reach_the_origins() -> None:
    asked = request(cluster(env={"VALUE": "\n".join(HOSTILE)}))
    assert set(origins(asked).values()) <= {"default", "cluster file here.yaml", "the runtime"}
