"""What can't be rendered, with the message a user sees."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.cases import each
from tests.support.render_cases import cluster, rendered, request, script
from trainjob.contract.errors import UserError
from trainjob.contract.quoting import QuotingError
from trainjob.contract.tasks import BUILT_IN
from trainjob.records import job as contract
from trainjob.render.request import PlaceError


@pytest.mark.parametrize("key", ["data_dir", "secrets_file", "python"])
@pytest.mark.parametrize("path", ["data/x", "./x", "~other/x", "../x"])
def test_a_relative_path_would_mean_another_place_where_the_script_runs(key: str, path: str) -> None:
    with pytest.raises(PlaceError) as caught:
        script(request(cluster(**{key: path})))
    assert str(caught.value) == (
        f"{key} is {path} in cluster file here.yaml, and a script runs in its run directory: "
        "write the whole path, from / or ~/ on"
    )


def test_an_interpreter_by_name_is_looked_up_where_the_script_runs() -> None:
    assert "  use_python python3.11\n" in script(request(cluster(python="python3.11")))


@pytest.mark.parametrize("where", ["command", "env"])
def test_a_text_too_long_for_linux_is_refused_before_it_is_sent(where: str) -> None:
    values: dict[str, Any] = {"command": ["echo"], "env": {"LONG": "x"}}
    long: dict[str, Any] = {"command": ["echo", "x" * 200_000], "env": {"LONG": "x" * 200_000}}
    with pytest.raises(QuotingError, match="has 200000 bytes and one argument or value may have 130048"):
        script(request(**{**values, where: long[where]}))


def test_job_json_is_what_the_runtime_reads() -> None:
    asked = request(instances=2, epochs=3, learning_rate=0.5, set={"width": 8}, env={"A": "ü\udcff"[:1]})
    record = contract.parse(rendered(asked).files["job.json"].content.decode())
    assert record.train is not None
    assert (record.train.instances, record.train.epochs, record.train.learning_rate) == (2, 3, 0.5)
    assert (record.train.task_options, record.environment) == ({"width": 8}, {"A": "ü", "OMP_NUM_THREADS": "1"})


def test_one_thread_for_short_micro_batches_unless_somebody_says_otherwise() -> None:
    def threads(**job: Any) -> str | None:
        record = contract.parse(rendered(request(**job)).files["job.json"].content.decode())
        return record.environment.get("OMP_NUM_THREADS")

    assert (threads(), threads(micro_batch=17), threads(command=["a"])) == ("1", None, None)
    assert threads(env={"OMP_NUM_THREADS": "3"}) == "3"


def test_a_command_has_no_train_settings() -> None:
    record = contract.parse(rendered(request(command=["a", "b c"])).files["job.json"].content.decode())
    assert (record.train, record.command) == (None, ["a", "b c"])


def test_every_setting_that_a_job_and_the_runtime_share_is_handed_over() -> None:
    given: dict[str, Any] = {
        "momentum": 0.5,
        "weight_decay": 0.25,
        "warmup_updates": 3,
        "reduction": "sum",
        "precision": "64.64",
    }
    given |= {"eight_bit_io": True, "bucket_mb": 7, "workers": 1, "seed": 9, "checkpoint_every": 5, "log_every": 2}
    given |= {"keep_checkpoints": 4, "allow_unused_parameters": True, "loss_is_summed": True, "remainder": "pad"}
    given |= {"optimizer": "adamw", "schedule": "constant", "updates": 11, "micro_batch": 2, "accumulation": 3}
    train = json.loads(rendered(request(task="ffnet-toy", samples=512, **given)).files["job.json"].content)["train"]
    assert {name: train[name] for name in given} == given


@pytest.mark.parametrize("task", BUILT_IN)
def test_a_task_brings_its_own_facts(task: str) -> None:
    train = json.loads(rendered(request(task=task)).files["job.json"].content)["train"]
    facts = BUILT_IN[task]
    assert (train["entry"], train["data"], train["learning_rate"]) == (facts.entry, facts.data, facts.learning_rate)


NODES = {"count": 4, "accelerator": "gpu", "accelerators": 2, "cpus": 8}


@each(
    ("file", "job", "message"),
    [
        (
            {"nodes": {**NODES, "accelerator": "ipu"}, "container": {"runtime": "apptainer", "image": "i"}},
            {},
            "container.runtime is apptainer and nodes.accelerator is ipu: poprun starts ranks by the SDK's mpirun",
        ),
        (
            {"container": {"runtime": "apptainer", "image": "i"}},
            {"engine": "horovod"},
            "engine horovod starts its ranks by mpirun, which can't start each in its own container",
        ),
        ({"network": {"interface": "10.5.0.0/16"}}, {}, "10.5.0.0/16, and under Slurm ranks meet at one interface's"),
        ({"directives": {"nodes": 3}}, {}, "directives.nodes is decided elsewhere .--hosts of the job.: take it out"),
        ({"directives": {"time": "1:00"}}, {}, "directives.time is decided elsewhere .time_limit: of the cluster file"),
        ({"directives": {"gres": "gpu:4"}}, {}, "directives.gres and request: gres both request accelerators"),
        ({"directives": {"comment": "-x"}}, {}, "directive comment: '-x' begins with a dash"),
        # sbatch takes the beginning of a name for the whole of it.
        (
            {"directives": {"arr": "0-2"}},
            {},
            "directives.arr abbreviates array, and options are given by their",
        ),
        ({"directives": {"outp": "x"}}, {}, "directives.outp abbreviates output"),
        ({"directives": {"ntasks-per-n": 2}}, {}, "directives.ntasks-per-n abbreviates ntasks-per-node"),
        ({"directives": {"chd": "/"}}, {}, "write chdir"),
        ({"directives": {"test-only": True}}, {}, "directives.test-only would keep sbatch from submitting the job"),
        ({"directives": {"partiton": "gpu"}}, {}, "sbatch has no option --partiton: did you mean partition?"),
        ({"directives": {"part": "gpu"}, "plugin_options": ["part"]}, {}, "part abbreviates partition"),
        ({}, {"name": "-x"}, "directive job-name: '-x' begins with a dash"),
    ],
)
def test_what_slurm_can_not_be_asked(file: dict[str, object], job: dict[str, Any], message: str) -> None:
    place = cluster(kind="slurm", **{"nodes": NODES, **file})
    with pytest.raises(UserError, match=message):
        script(request(place, **job))


def test_an_option_that_a_plugin_of_the_site_adds_is_taken() -> None:
    place = cluster(kind="slurm", nodes=NODES, directives={"ipu-model": "m2000"}, plugin_options=["ipu-model"])
    assert "#SBATCH --ipu-model=m2000" in script(request(place))
