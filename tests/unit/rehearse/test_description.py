"""A cluster file's private Slurm: what of it is described, and what can't be had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.kinds.table import cluster_of
from trainjob.rehearse.base import redirects
from trainjob.rehearse.slurm.configuration import files, gres_conf, slurm_conf
from trainjob.rehearse.slurm.description import PREEMPTING_PARTITION, Description, description_of


def cluster(**changes: Any) -> SlurmCluster:
    nodes = {"count": 8, "accelerator": "gpu", "accelerators": 4, "cpus": 64, "memory_gb": 500}
    found = cluster_of({"kind": "slurm", "nodes": nodes, **changes})
    assert isinstance(found, SlurmCluster)
    return found


def test_only_the_nodes_that_a_job_needs_get_a_daemon_and_one_to_spare() -> None:
    assert description_of(cluster(), nodes_needed=2).nodes_at_work == ("node1", "node2", "node3")
    assert len(description_of(cluster(), nodes_needed=8).nodes_at_work) == 8


@pytest.mark.parametrize(
    ("preemption", "mode", "settings"),
    [
        ("requeue", "REQUEUE", {}),
        ("cancel", "CANCEL", {}),
        ("user-signal", "CANCEL", {"SlurmctldParameters": "preempt_send_user_signal"}),
    ],
)
def test_preempts_as_the_site_does(preemption: str, mode: str, settings: dict[str, str]) -> None:
    made = description_of(cluster(preemption=preemption), 1)
    theirs, urgent = made.partitions
    assert (theirs.preempt_mode, urgent.name, made.settings) == (mode, PREEMPTING_PARTITION, settings)
    assert urgent.priority_tier > theirs.priority_tier


def test_what_directives_name_is_there() -> None:
    made = description_of(
        cluster(directives={"partition": "a,b", "constraint": "[ib&80g*2]|v100", "licenses": "x:2"}), 1
    )
    conf = slurm_conf(made, Path("/f"))
    assert [one.name for one in made.partitions] == ["a", "b", PREEMPTING_PARTITION]
    assert "Features=ib,80g,v100" in conf
    assert "Licenses=x:2" in conf


def test_a_disk_is_a_gres_beside_the_gpus() -> None:
    made = description_of(cluster(request="none", directives={"gres": "nvme:400,gpu:a100:4"}), 1)
    conf = slurm_conf(made, Path("/f"))
    assert "GresTypes=gpu,nvme\n" in conf
    assert "Gres=gpu:4,nvme:400\n" in conf
    assert gres_conf(made, Path("/f")).startswith("Name=nvme Count=400 Flags=CountOnly\n")


def test_groups_of_nodes_have_what_is_theirs() -> None:
    groups = [
        {"name": "big", "count": 1, "accelerators": 8, "directives": {"constraint": "nv", "partition": "long"}},
        {"name": "small", "count": 2, "accelerators": 4, "memory_gb": 1},
    ]
    nodes = [{"accelerator": "gpu", "type": "a100", "cpus": 64, **group} for group in groups]
    made = description_of(cluster(nodes=nodes), nodes_needed=3)
    lines = [line for line in slurm_conf(made, Path("/f")).splitlines() if line.startswith("NodeName")]
    assert [line.split()[0] for line in lines] == ["NodeName=node1", "NodeName=node2", "NodeName=node3"]
    assert lines[0].endswith("Gres=gpu:a100:8 Features=nv")
    assert lines[2].endswith("CPUs=64 RealMemory=1024 Gres=gpu:a100:4")
    assert [one.name for one in made.partitions] == ["long", "rehearsal", PREEMPTING_PARTITION]
    assert gres_conf(made, Path("/f")) == (
        "NodeName=node1 Name=gpu Type=a100 File=/f/private/gpu[0-7]\n"
        "NodeName=node2,node3 Name=gpu Type=a100 File=/f/private/gpu[0-3]\n"
    )
    assert "gpu7" in files(made, Path("/f"), None, "22.05")["settings"]


def test_settings_of_the_description_stand_above_ours() -> None:
    conf = slurm_conf(Description(settings={"ReturnToService": "0"}), Path("/f"))
    assert "ReturnToService=0\n" in conf
    assert conf.count("ReturnToService") == 1


def test_every_path_lies_in_its_folder_and_every_node_has_a_port() -> None:
    conf = slurm_conf(description_of(cluster(), 2), Path("/f"))
    paths = [word for line in conf.splitlines() for word in line.split("=", 1)[1:] if word.startswith("/")]
    assert paths
    assert [path for path in paths if not path.startswith("/f/private/")] == ["/f/task-prolog"]
    ports = [
        word for line in conf.splitlines() if line.startswith("NodeName=") for word in line.split() if "Port=" in word
    ]
    assert len(set(ports)) == 8


def test_devices_are_files() -> None:
    made = description_of(cluster(), 2)
    assert gres_conf(made, Path("/f")) == "Name=gpu File=/f/private/gpu[0-3]\n"
    assert "devices='gpu0 gpu1 gpu2 gpu3'\n" in files(made, Path("/f"), None, "22.05")["settings"]
    assert gres_conf(Description(), Path("/f")) == ""


def test_every_node_has_an_address() -> None:
    assert (
        files(Description(nodes=2), Path("/f"), None, "22.05")["hosts"]
        == "127.0.0.1 localhost login\n10.213.0.1 node1 node2\n"
    )


def test_what_the_user_has_set_holds() -> None:
    found = redirects(cluster(), {"TRAINJOB_PYTHON": "/other/python", "HOME": "/x"}, 5, Path("/data"))
    assert found["TRAINJOB_PYTHON"] == "/other/python"
    assert found["TRAINJOB_MAX_UPDATES"] == "5"
    assert found["TRAINJOB_DATA_DIR"] == "/data"
    assert "HOME" not in found
    assert "TRAINJOB_INTERFACE" not in found


def test_an_interface_that_is_not_here_is_redirected_and_a_whole_job_is_not_cut() -> None:
    found = redirects(cluster(network={"interface": "ib0"}), {}, None, None)
    assert found["TRAINJOB_INTERFACE"] == "lo"
    assert "TRAINJOB_MAX_UPDATES" not in found


@pytest.mark.parametrize(("installed", "is_written"), [("22.05", False), ("23.02", True), ("24.11", True)])
def test_a_slurm_that_looks_for_cgroups_learns_that_there_are_none(installed: str, is_written: bool) -> None:
    assert ("cgroup.conf" in files(Description(nodes=2), Path("/f"), None, installed)) == is_written
