"""What a job script for Slurm asks for: directives by the site's ways, their origins, and a site's own template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import each
from tests.support.render_cases import cluster, explained_script, request, script, site_template
from trainjob.cluster.base import with_directives
from trainjob.cluster.faults import InvalidError
from trainjob.cluster.job import Job
from trainjob.contract.errors import UserError
from trainjob.render.sourced import beside

NODES = {"count": 8, "accelerator": "gpu", "accelerators": 4, "cpus": 64}
SBATCH = "jobs/sbatch.sh.j2"
A100 = {"nodes": {**NODES, "type": "a100"}}


def site(**values: Any) -> Any:
    return cluster(kind="slurm", **{"nodes": NODES, **values})


def asked(place: Any, **job: Any) -> list[str]:
    lines = script(request(place, **job)).splitlines()
    return [line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH ")]


@each(
    ("values", "expected"),
    [
        ({}, "gres=gpu:2"),
        (A100, "gres=gpu:a100:2"),
        ({"request": "gpus-per-node"}, "gpus-per-node=2"),
        ({**A100, "request": "gpus-per-node"}, "gpus-per-node=a100:2"),
        ({"directives": {"exclusive": True}}, "exclusive"),
        ({"directives": {"comment": "two words"}}, 'comment="two words"'),
        ({"directives": {"cpus-per-task": 5}}, "cpus-per-task=5"),
        ({"directives": {"cpus-per-gpu": 12}}, "cpus-per-task=12"),
        ({"directives": {"mem-per-gpu": "60G"}}, "mem-per-gpu=60G"),
        ({"directives": {"network": "job_vni"}}, "network=job_vni"),
        ({"nodes": {**NODES, "gres": "dcu"}}, "gres=dcu:2"),
        ({}, "cpus-per-task=32"),
        ({}, "nodes=2"),
        ({}, "ntasks-per-node=2"),
        ({"time_limit": "04:00:00"}, "time=04:00:00"),
        ({}, "signal=B:USR1@120"),
        ({"time_limit_signal": {"to": "steps", "margin_s": 60}}, "signal=USR1@60"),
        ({}, "requeue"),
        ({"directives": {"no-requeue": True}}, "no-requeue"),
        ({}, "export=NONE"),
        ({"directives": {"exclusive": True}}, "mem=0"),
        ({"nodes": {**NODES, "memory_gb": 500}}, "mem=500G"),
        ({"nodes": {**NODES, "memory_gb": 500}, "directives": {"exclusive": True}}, "mem=0"),
        # exclusive=user shares nodes among one user's jobs.
        ({"nodes": {**NODES, "memory_gb": 500}, "directives": {"exclusive": "user"}}, "mem=500G"),
        ({"nodes": {**NODES, "memory_gb": 500}, "directives": {"cpus-per-task": 8}}, "mem=125G"),
        ({"nodes": {**NODES, "memory_gb": 500}, "directives": {"cpus-per-task": 5}}, "mem=80000M"),
        ({"directives": {"mem": "7G", "exclusive": True}}, "mem=7G"),
        ({"directives": {"mem-per-cpu": "7G", "exclusive": True}}, "mem-per-cpu=7G"),
        ({}, "propagate=NONE"),
        ({"directives": {"propagate": "MEMLOCK"}}, "propagate=MEMLOCK"),
        ({}, "open-mode=append"),
        ({}, "output=logs/scheduler.out"),
    ],
)
def test_it_is_asked_in_the_sites_way(values: dict[str, Any], expected: str) -> None:
    assert expected in asked(site(**values), instances=4, hosts=2)


HYPER = {**NODES, "threads_per_core": 2, "memory_gb": 500}


@pytest.mark.parametrize(
    ("nodes", "directives", "instances", "cpus", "memory"),
    [
        ({}, {}, 4, 16, "500G"),
        ({}, {"hint": "nomultithread"}, 4, 8, "500G"),
        ({}, {"threads-per-core": 1}, 4, 8, "500G"),
        ({}, {"hint": "multithread"}, 4, 16, "500G"),
        # 64 / 3 would take half a core from each rank, of which Slurm gives whole ones: 66 of 64 CPUs.
        ({}, {}, 3, 20, "480000M"),
        ({"cpus": 4}, {}, 4, 1, "500G"),
        ({"threads_per_core": 1}, {"hint": "nomultithread"}, 4, 16, "500G"),
    ],
)
def test_hyper_threads(nodes: Any, directives: Any, instances: int, cpus: int, memory: str) -> None:
    lines = asked(site(nodes={**HYPER, **nodes}, directives=directives), instances=instances, hosts=1)
    assert f"cpus-per-task={cpus}" in lines
    assert f"mem={memory}" in lines


def with_settings(place: Any, **job: Any) -> str:
    return explained_script(request(with_directives("hpc", place, Job(**job)), origins={"hint": "flag --hint"}, **job))


def test_a_hint_reaches_sbatch_and_srun_with_its_origin() -> None:
    text = with_settings(site(nodes=HYPER, directives={"hint": "multithread"}), hint="nomultithread")
    assert "#SBATCH --hint=nomultithread" in text
    assert "--hint=multithread" not in text
    [srun] = [line for line in text.splitlines() if '"$TRAINJOB_SRUN" <&' in line]
    assert "--hint=nomultithread" in srun
    assert "flag --hint" in srun


def test_a_hint_beside_a_binding_of_sruns_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"hint is nomultithread, and srun\.cpu-bind is cores: srun takes one of the two"
    ):
        with_settings(site(nodes=HYPER, srun={"cpu-bind": "cores"}), hint="nomultithread")


def test_a_cluster_file_may_give_sbatch_a_hint_and_srun_a_binding() -> None:
    text = with_settings(site(nodes=HYPER, directives={"hint": "nomultithread"}, srun={"cpu-bind": "none"}))
    assert "#SBATCH --hint=nomultithread" in text
    assert text.count("--hint") == 1


def test_a_range_of_hosts() -> None:
    text = script(request(site(), hosts=4, least_hosts=2, global_batch=192))
    assert "#SBATCH --nodes=2-4\n" in text
    assert ' --ntasks="$((SLURM_JOB_NUM_NODES * 4))" ' in text
    assert "#SBATCH --ntasks-per-node=4\n" in text
    assert "ntasks=" not in script(request(site(), hosts=4))
    # Slurm would give the fewest.
    assert "ntasks-per-node" not in script(request(site(), instances=4, hosts=4, least_hosts=2, global_batch=48))


def test_a_jobs_memory_is_before_the_sites_however_each_asks_for_it() -> None:
    """sbatch takes only one of these options."""
    own = Job(directives={"mem-per-cpu": "2G"})
    named = with_directives("hpc", site(directives={"mem": "7G", "qos": "long"}), own)
    lines = asked(named)
    assert {"mem-per-cpu=2G", "qos=long"} < {*lines}
    assert not any(line.startswith("mem=") for line in lines)


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ("uv run --frozen python", "uv run --frozen python"),
        ("mamba run -n torch python", "mamba run -n torch python"),
        ("/opt/uv run/bin/python", "'/opt/uv run/bin/python'"),
        ("uv run python; reboot", "'uv run python; reboot'"),
    ],
)
def test_words_that_start_an_interpreter_stay_words(python: str, words: str) -> None:
    assert f"use_python {words}\n" in script(request(site(python=python)))


def test_the_shortest_time_limit() -> None:
    place = site(time_limit="04:00:00")
    lines = asked(with_directives("hpc", place, Job(time_min="01:00:00")), time_min="01:00:00")
    assert "time=04:00:00" in lines
    assert "time-min=01:00:00" in lines


@each(
    ("values", "absent"),
    [
        ({"request": "none"}, "gres"),
        ({"nodes": {"count": 2, "cpus": 4}}, "gres"),
        ({"directives": {"hold": False}}, "hold"),
        ({"directives": {"requeue": False}}, "requeue"),
        ({"directives": {"no-requeue": True}}, "requeue"),
        ({}, "time"),
        ({}, "mem"),
        ({"nodes": {**NODES, "memory_gb": 500}, "directives": {"mem-per-gpu": "7G"}}, "mem"),
        ({"directives": {"mem-per-cpu": "7G", "exclusive": True}}, "mem"),
    ],
)
def test_what_is_not_asked(values: dict[str, Any], absent: str) -> None:
    assert not [line for line in asked(site(**values)) if line.split("=")[0] == absent]


def test_what_the_cluster_file_says_of_grace_and_data_reaches_the_launcher() -> None:
    lines = script(request(site(grace_s=90, network={"interface": "eno1", "data_interface": "^docker,lo"})))
    assert "--interface eno1 --data-interface '^docker,lo' --grace-s 90" in lines
    assert "--grace-s" not in script(request(site()))
    assert "--binding none" in script(request(site(binding="none")))
    of_mpirun = script(request(site(grace_s=90), engine="horovod", instances=2))
    assert 'trainjob.launch.ranks.starter --parent "$$" --grace-s 90 "$TRAINJOB_RUN_DIR"' in of_mpirun


def test_the_sites_options_of_srun_stand_on_its_line_each_one_word_with_its_origin() -> None:
    options = {
        "cpu-bind": "verbose,cores",
        "mpi": "none",
        "wait": 60,
        "label": True,
        "quiet": False,
        "comment": "a b; c",
    }
    explained = beside(explained_script(request(site(srun=options))))
    (line,) = [one for one in explained if "--kill-on-bad-exit" in one.line]
    assert " --cpu-bind=verbose,cores --mpi=none --wait=60 --label '--comment=a b; c' \\" in line.line
    assert "--quiet" not in line.line
    assert "cluster file here.yaml" in line.origin


def test_what_the_job_script_decides_of_srun_is_refused() -> None:
    with pytest.raises(UserError, match=r"srun\.ntasks is decided by the job script"):
        script(request(site(srun={"ntasks": 3})))


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
    found = {line: origin for line, origin, _ in beside(explained_script(wanted))}
    assert found["#SBATCH --ntasks-per-node=2"] == "flag --instances"
    assert found["#SBATCH --time=00:30:00"] == "job file mine.yaml"
    assert found["#SBATCH --partition=gpu"] == "cluster file here.yaml"
    assert found["#SBATCH --open-mode=append"] == "every job of this kind"


def test_a_site_adds_to_a_block(tmp_path: Path) -> None:
    text = (
        '{% extends "trainjob/jobs/sbatch.sh.j2" %}{% block setting %}{{ super() }}ulimit -l unlimited\n{% endblock %}'
    )
    wanted = request(site())
    ours, theirs = (script(wanted, *more).splitlines() for more in ((), (site_template(tmp_path, text, SBATCH),)))
    assert [line for line in theirs if line not in ours] == ["ulimit -l unlimited"]


def test_each_group_of_nodes_asks_for_its_own_and_the_script_belongs_to_the_first() -> None:
    groups = [
        {
            "name": "big",
            "count": 1,
            "cpus": 4,
            "memory_gb": 8,
            "directives": {"constraint": "big", "partition": "long"},
        },
        {"name": "small", "count": 2, "cpus": 2, "memory_gb": 3},
    ]
    place = site(nodes=groups, directives={"partition": "main"}, srun={"cpu-bind": "cores"})
    lines = asked(place)
    middle = lines.index("#SBATCH hetjob")
    first, second = lines[:middle], lines[middle + 1 :]
    assert {"nodes=1", "ntasks-per-node=2", "cpus-per-task=2", "mem=8G", "constraint=big", "partition=long"} < {*first}
    assert {"nodes=2", "ntasks-per-node=1", "cpus-per-task=2", "mem=3G", "partition=main", "requeue"} < {*second}
    assert {line.split("=")[0] for line in first} - {line.split("=")[0] for line in second} == {
        *("constraint", "open-mode", "output", "export"),
    }
    page = script(request(place))
    assert "node_groups=2 job_ranks=4\n" in page
    cpus = '--cpus-per-task="${{SLURM_CPUS_PER_TASK_HET_GROUP_{0}:-2}}"'
    printed = f"    --het-group={{0}} --export=ALL --kill-on-bad-exit=1 {cpus}"
    assert f"{printed.format(0)} --cpu-bind=cores : \\\n{printed.format(1)} --cpu-bind=cores \\\n" in page


@pytest.mark.parametrize(
    ("values", "job", "words"),
    [
        ({"container": {"runtime": "pyxis", "image": "/i.sqsh"}}, {}, "container.runtime is pyxis and nodes is a list"),
        ({}, {"env": {"TEXT": "a\n\nb"}}, "env TEXT holds an empty line, and nodes is a list of groups"),
    ],
    ids=["pyxis", "an empty line"],
)
def test_what_groups_of_nodes_can_not_carry_is_refused(values: dict[str, Any], job: dict[str, Any], words: str) -> None:
    groups = [{"name": name, "count": 1, "cpus": 4} for name in ("a", "b")]
    with pytest.raises(UserError, match=words):
        script(request(site(nodes=groups, **values), **job))


def test_a_launcher_gets_the_cpus_of_all_its_gpus() -> None:
    place = site(directives={"cpus-per-gpu": 12})
    text = script(request(place, command=["torchrun", "train.py"], instances=4))
    assert "#SBATCH --cpus-per-task=48" in text
    assert "cpus-per-gpu" not in text


def test_gpus_per_node_asks_for_gpus_alone() -> None:
    with pytest.raises(InvalidError, match="asks for the GRES gpu, and nodes"):
        site(nodes={**NODES, "gres": "dcu"}, request="gpus-per-node")
