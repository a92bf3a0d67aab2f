"""What a job script for Slurm asks for: directives by the site's ways, their origins, and a site's own template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from render_cases import cluster, explained_script, request, script, site_template

from trainjob.render.explain import beside

NODES = {"count": 8, "accelerator": "gpu", "accelerators": 4, "cpus": 64}
SBATCH = "jobs/sbatch.sh.j2"
A100 = {"nodes": {**NODES, "type": "a100"}}


def site(**values: Any) -> Any:
    return cluster(kind="slurm", **{"nodes": NODES, **values})


def asked(place: Any, **job: Any) -> list[str]:
    lines = script(request(place, **job)).splitlines()
    return [line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH ")]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, "gres=gpu:2"),
        (A100, "gres=gpu:a100:2"),
        ({"request": "gpus-per-node"}, "gpus-per-node=2"),
        ({**A100, "request": "gpus-per-node"}, "gpus-per-node=a100:2"),
        ({"directives": {"exclusive": True}}, "exclusive"),
        ({"directives": {"comment": "two words"}}, 'comment="two words"'),
        ({"directives": {"cpus-per-task": 5}}, "cpus-per-task=5"),
        ({}, "cpus-per-task=32"),
        ({}, "nodes=2"),
        ({}, "ntasks-per-node=2"),
        ({"time_limit": "04:00:00"}, "time=04:00:00"),
        ({}, "signal=USR1@120"),
        ({"time_limit_signal": {"to": "batch", "margin_s": 60}}, "signal=B:USR1@60"),
        ({}, "requeue"),
        ({"directives": {"no-requeue": True}}, "no-requeue"),
        ({}, "export=NONE"),
        ({}, "open-mode=append"),
        ({}, "output=logs/scheduler.out"),
    ],
)
def test_it_is_asked_in_the_sites_way(values: dict[str, Any], expected: str) -> None:
    assert expected in asked(site(**values), instances=4, hosts=2)


@pytest.mark.parametrize(
    ("values", "absent"),
    [
        ({"request": "none"}, "gres"),
        ({"nodes": {"count": 2, "cpus": 4}}, "gres"),
        ({"directives": {"hold": False}}, "hold"),
        ({"directives": {"requeue": False}}, "requeue"),
        ({"directives": {"no-requeue": True}}, "requeue"),
        ({}, "time"),
    ],
)
def test_what_is_not_asked(values: dict[str, Any], absent: str) -> None:
    assert not [line for line in asked(site(**values)) if line.split("=")[0] == absent]


def test_directives_come_before_anything_that_runs() -> None:
    lines = script(request(site())).splitlines()
    last = max(number for number, line in enumerate(lines) if line.startswith("#SBATCH"))
    assert all(line.startswith("#") for line in lines[: last + 1])


def test_a_jobs_time_limit_is_before_the_sites() -> None:
    place = site(time_limit="04:00:00")
    assert "time=00:30:00" in asked(place, time_limit="00:30:00")


def test_each_line_says_where_it_came_from() -> None:
    origins = {"instances": "flag --instances", "time_limit": "job file mine.yaml"}
    wanted = request(site(directives={"partition": "gpu"}), origins, instances=2, time_limit="00:30:00")
    found = dict(beside(explained_script(wanted)))
    assert found["#SBATCH --ntasks-per-node=2"] == "flag --instances"
    assert found["#SBATCH --time=00:30:00"] == "job file mine.yaml"
    assert found["#SBATCH --partition=gpu"] == "cluster file here.yaml"
    assert found["#SBATCH --open-mode=append"] == "default"


def test_a_site_adds_to_a_block(tmp_path: Path) -> None:
    text = (
        '{% extends "trainjob/jobs/sbatch.sh.j2" %}{% block setting %}{{ super() }}ulimit -l unlimited\n{% endblock %}'
    )
    wanted = request(site())
    ours, theirs = (script(wanted, *more).splitlines() for more in ((), (site_template(tmp_path, text, SBATCH),)))
    assert [line for line in theirs if line not in ours] == ["ulimit -l unlimited"]
