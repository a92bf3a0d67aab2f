from __future__ import annotations

import json
import re
from typing import Any

import pytest

from trainjob.cluster.job import Job
from trainjob.contract.settings import names
from trainjob.kinds.schema import cluster_schema, job_schema
from trainjob.kinds.table import KINDS


def objects(schema: Any) -> dict[str, Any]:
    """Yield every object with fixed keys in `schema`, by title."""
    found = {**schema.get("$defs", {}), schema["title"]: schema}
    return {title: each for title, each in found.items() if "properties" in each}


def explanation(schema: Any, about: Any) -> Any:
    name = about.get("$ref", "").removeprefix("#/$defs/")
    return about.get("description") or schema["$defs"][name]["description"] if name else about.get("description")


@pytest.mark.parametrize("schema", [cluster_schema(), job_schema()], ids=["cluster", "job"])
def test_every_key_is_explained_and_no_other_is_allowed(schema: Any) -> None:
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert len(objects(schema)) > (8 if "$defs" in schema else 0)
    for title, each in objects(schema).items():
        assert each["additionalProperties"] is False, title
        assert [key for key, about in each["properties"].items() if not explanation(schema, about)] == [], title


def test_the_key_kind_decides_which_kind_a_cluster_file_is() -> None:
    schema = cluster_schema()
    names = [branch["$ref"].removeprefix("#/$defs/") for branch in schema["oneOf"]]
    assert names == [kind.MODEL.__name__ for kind in KINDS.values()]
    kinds = [schema["$defs"][name]["properties"]["kind"]["const"] for name in names]
    assert kinds == list(KINDS)
    assert all("kind" in schema["$defs"][name]["required"] for name in names)


def test_a_job_file_has_the_keys_of_a_job() -> None:
    schema = job_schema()
    assert schema["title"] == "trainjob job file"
    assert set(schema["properties"]) == {*names(Job), "cluster"}
    assert schema["properties"]["remainder"]["enum"] == ["drop", "pad"]
    assert schema["properties"]["bucket_mb"]["minimum"] == 1


def test_environment_values_may_be_written_as_numbers() -> None:
    assert job_schema()["properties"]["env"]["patternProperties"] == {
        "^[A-Za-z_][A-Za-z0-9_]*$": {"type": ["string", "number"]}
    }


def test_every_pattern_is_one_that_editors_read() -> None:
    patterns = re.findall(r'"pattern": "(.*)"', json.dumps([cluster_schema(), job_schema()], indent=1))
    assert patterns
    assert not [pattern for pattern in patterns if re.search(r"\\\\[AzZ]|\(\?P", pattern)]
