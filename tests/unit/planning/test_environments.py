"""The plan shows the environment of the ranks, and a job file that can't mean one is refused."""

from __future__ import annotations

import pytest

from tests.support.plan_cases import local, planned, pod, refused, slurm
from trainjob.cluster.base import Cluster
from trainjob.cluster.faults import InvalidError
from trainjob.cluster.job import Job


@pytest.mark.parametrize(
    ("stated", "row"),
    [
        (
            {"uv": "pyproject.toml"},
            "uv.lock beside pyproject.toml, installed once; ranks don't sync, on each node in the",
        ),
        ({"venv": "/venvs/torch", "folder": "/local"}, "/venvs/torch, on each node in /local before its ranks start"),
        ({"archive": "~/env.tar"}, "~/env.tar, on each node in the temporary folder before its ranks start"),
    ],
)
def test_the_plan_shows_it(stated: dict[str, str], row: str) -> None:
    assert planned(local(), environment=stated).facts["environment"].startswith(row)


@pytest.mark.parametrize(
    ("stated", "text"),
    [
        ({"folder": "/local"}, "read folder, expected one of uv, venv, archive, and folder"),
        ({"uv": "pyproject.toml", "venv": "/v"}, "read uv, venv, expected one of"),
        ({"conda": "/v"}, "read conda, expected one of"),
        ({"venv": "venvs/torch"}, "read venv: venvs/torch, expected a path that every node sees"),
        ({"uv": "/shared/pyproject.toml"}, "expected the path of a pyproject.toml in the project"),
    ],
)
def test_what_names_no_environment_is_refused(stated: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidError, match=text):
        Job.of({"environment": stated})


@pytest.mark.parametrize(
    ("cluster", "values"),
    [
        (pod(16), "environment is given, and poprun starts the ranks in the SDK's. Leave environment out."),
        (
            local(container={"runtime": "docker", "image": "torch"}),
            "environment is given, and container.runtime is docker. Leave environment out.",
        ),
    ],
)
def test_ranks_that_have_an_environment_get_no_other(cluster: Cluster, values: str) -> None:
    rule = "ranks run in one environment: the job's, a container, or the SDK's virtualenv"
    assert f"{rule}: {values}" in str(refused(cluster, environment={"archive": "/shared/env.tar"}))


@pytest.mark.parametrize("runtime", ["docker", "apptainer", "pyxis"])
def test_no_container_is_asked_on_its_host_for_an_interpreter(runtime: str) -> None:
    container = {"runtime": runtime, "image": "/images/torch.sif"}
    values = f"python is uv run python, and container.runtime is {runtime}. Name the image's interpreter (python: /opt/"
    assert values in str(refused(slurm(python="uv run python", container=container)))
    for allowed in ({"python": "/opt/venv/bin/python", "container": container}, {"python": "uv run python"}):
        planned(slurm(**allowed))
