"""Whatever finds a problem, `--json` prints it in one shape: docs/reference/problem.schema.json."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from batchfiles.rules.codes import CODES, Finding
from docs.reference_pages import problem_schema
from trainjob.accept.steps import StepOutcome
from trainjob.contract.errors import Problem, UserError
from trainjob.records.causes import Cause
from trainjob.verify.tasks.diagnosis import LikelyCause

SHAPES = {
    "check": Problem("disk", "3 GB are free, and checkpoints take 4 GB", "Free some", where="node1").as_json(),
    "errors": UserError("there is no cluster x", "name another").as_json(),
    "doctor": Finding(next(iter(CODES)), 3, "what was read").as_json(),
    "status": Cause("killed", "rank 3 was killed", "See its log").as_json(),
    "verify": asdict(LikelyCause("rng", "the random state was not restored", "update 3", "Save it")),
    "accept": StepOutcome("host", "", "failed", problems=[Problem("host", "few CPUs", "")]).as_json()["problems"][0],
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_problem_has_the_shape_of_the_schema(name: str) -> None:
    found: dict[str, Any] = SHAPES[name]
    schema = problem_schema()
    assert set(schema["required"]) <= set(found)
    assert {key: type(found[key]) for key in schema["required"]} == dict.fromkeys(schema["required"], str)
    assert found["severity"] in schema["properties"]["severity"]["enum"]
