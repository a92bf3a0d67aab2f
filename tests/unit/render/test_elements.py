"""The tasks of an array: one script for all, whatever each has of its own, and a job.json a task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import each
from tests.support.render_cases import HOSTILE, cluster, rendered, request
from trainjob.cluster.faults import JobError
from trainjob.cluster.job import Job
from trainjob.contract.settings import names
from trainjob.render import elements
from trainjob.render.elements import SHARED, Elements, Variation
from trainjob.render.request import Request

PLACE = cluster(kind="slurm", nodes={"count": 2, "cpus": 8})
# A value of its own for each key in which tasks may differ.
OWN: dict[str, Any] = {
    "set": {"width": 8},
    "env": {"NOTE": "x"},
    "micro_batch": 8,
    "accumulation": 2,
    "global_batch": 16,
    "device_iterations": 1,
    "epochs": 3,
    "updates": 7,
    "remainder": "pad",
    "optimizer": "adamw",
    "learning_rate": 0.5,
    "scale_learning_rate": "sqrt",
    "base_batch": 2,
    "momentum": 0.5,
    "weight_decay": 0.1,
    "schedule": "cosine",
    "optimizer_options": {"nesterov": True},
    "schedule_options": {"end": 0.1},
    "warmup_updates": 3,
    "reduction": "sum",
    "precision": "64.64",
    "eight_bit_io": True,
    "bucket_mb": 3,
    "sum_order": "fixed",
    "workers": 1,
    "seed": 5,
    "checkpoint_every": 7,
    "keep_checkpoints": 2,
    "log_every": 2,
    "allow_unused_parameters": True,
    "clip_norm": 1.0,
    "average_decay": 0.99,
    "stall_timeout_s": 5.0,
    "trace": "samples",
    "loss_is_summed": True,
    "recompute": True,
    "compile": True,
    "profile": "2:3",
    "profile_ranks": "1",
    "memory_format": "channels-last",
    "optimizer_implementation": "foreach",
    "stage": "/scratch",
    "remove_staged": True,
}
# A task of one's own; scale_learning_rate; engine fsdp.
NEEDS_ANOTHER = {"samples", "base_batch", "shard_group", "offload"}


def swept(own: dict[str, Any], **job: Any) -> Request:
    asked = Job(array="0-1", sweep="sweep.yaml", **job)
    base = request(PLACE, **asked.given())
    return Elements(asked, (0, 1), {0: Variation(), 1: Variation(**own)}).planned(base)


def test_every_key_of_a_job_is_of_all_tasks_or_of_one() -> None:
    assert set(names(Job)) == {*SHARED, *OWN, *NEEDS_ANOTHER}


@each("key", sorted(OWN.keys() - NEEDS_ANOTHER - {"env"}))
def test_what_an_element_has_of_its_own_is_in_its_job_json_and_in_no_script(key: str) -> None:
    plain, made = rendered(swept({})), rendered(swept({key: OWN[key]}))
    assert made.files["job.sbatch"] == plain.files["job.sbatch"]
    assert made.files["tasks/0/job.json"] == plain.files["tasks/0/job.json"]
    assert json.loads(made.files["tasks/1/job.json"].content)["asked"]["job"][key] == OWN[key]


def test_no_value_of_a_sweep_stands_in_the_script() -> None:
    values = [text for text in HOSTILE if len(text) > 8]
    own = {"arguments": values, "env": {f"V{number}": text for number, text in enumerate(values)}}
    made = rendered(swept(own, command=["python", "train.py"]))
    text = made.files["job.sbatch"].content.decode()
    assert [value for value in values if value in text] == []
    record = json.loads(made.files["tasks/1/job.json"].content)
    assert record["command"] == ["python", "train.py", *values]
    assert set(values) <= set(record["environment"].values())


def test_without_a_sweep_every_element_is_the_same_job() -> None:
    asked = request(PLACE, array="1,3%1")
    made = rendered(elements.read(asked.job, Path("/nowhere")).planned(asked))
    assert sorted(made.files) == ["job.json", "job.sbatch", "tasks/1/job.json", "tasks/3/job.json"]
    assert made.files["tasks/3/job.json"] == made.files["job.json"]
    assert b"#SBATCH --array=1,3%1\n" in made.files["job.sbatch"].content


def test_an_element_that_no_plan_fits_is_named(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text("- seed: 1\n- micro_batch: 0\n")
    asked = elements.read(Job(sweep="sweep.yaml"), tmp_path)
    assert asked.job.array == "0-1"
    with pytest.raises(JobError, match=r"sweep.yaml, element 1: every count is at least 1: micro_batch is 0"):
        asked.planned(request(PLACE))


def test_more_elements_than_the_sweep_has(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text("- seed: 1\n- seed: 2\n")
    assert elements.read(Job(sweep="sweep.yaml", array="1"), tmp_path).numbers == (1,)
    with pytest.raises(JobError, match=r"--array 0-2 asks for element 2, and sweep.yaml has items for elements 0 to 1"):
        elements.read(Job(sweep="sweep.yaml", array="0-2"), tmp_path)
