from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainjob.contract.errors import UserError
from trainjob.contract.package import companion
from trainjob.kinds.lookup import NamedCluster, cluster_from_text
from trainjob.provision.drive import hosts_of
from trainjob.provision.inventory import inventory

SHA256 = "ab" * 32
POD = f"""\
kind: ipu-pod
ipus: 64
hosts: pod-host[1-3]
ssh: {{host: pod-host1, user: ml}}
network: {{interface: eno1}}
sdk: {{version: "3.3.0", path: /opt/poplar_sdk, venv: /shared/venvs/poptorch}}
data_dir: /localdata
provision:
  venv: {{kind: poplar, python: python3.8, archive: /shared/sdk.tar.gz, sha256: {SHA256}}}
  horovod: true
  data_sets: [{{name: digits}}, {{name: cifar10, archive: "https://data.invalid/c.tar.gz", sha256: {SHA256}}}]
  pod_hosts: {{user: ml}}
"""
SLURM = """\
kind: slurm
ssh: {host: login.hpc, user: me}
nodes: {count: 2, cpus: 8}
python: /shared/venvs/torch/bin/python
provision: {venv: {kind: cpu, shared: true}}
"""
LOCAL = """\
kind: local
python: /srv/venvs/torch/bin/python
provision: {venv: {kind: cpu, requirements: pinned.txt}}
"""


def found(text: Any, tmp_path: Path) -> Any:
    return NamedCluster("site", tmp_path / "site.yaml", "test", cluster_from_text(text, "site.yaml"))


def test_a_pods_hosts_are_in_the_groups_of_what_they_get(tmp_path: Path) -> None:
    made = inventory(found(POD, tmp_path))
    hosts = ["pod-host1", "pod-host2", "pod-host3"]
    assert {group: list(made.groups[group]) for group in ("sdk", "horovod", "pods", "datasets")} == {
        "sdk": hosts,
        "horovod": hosts,
        "pods": hosts,
        "datasets": hosts,
    }
    assert made.hosts["pod-host2"] == {"ansible_user": "ml"}


def test_the_roles_get_their_variables_from_the_cluster_file(tmp_path: Path) -> None:
    variables = inventory(found(POD, tmp_path)).variables
    assert variables == {
        "sdk_venv_kind": "poplar",
        "sdk_venv_path": "/shared/venvs/poptorch",
        "sdk_venv_python": "python3.8",
        "sdk_venv_sdk_path": "/opt/poplar_sdk",
        "sdk_venv_archive": "/shared/sdk.tar.gz",
        "sdk_venv_sha256": SHA256,
        "sdk_venv_shared": False,
        "dataset_dir": "/localdata",
        "dataset_shared": False,
        "dataset_sets": [
            {"name": "digits"},
            {"name": "cifar10", "archive": "https://data.invalid/c.tar.gz", "sha256": SHA256},
        ],
        "pod_hosts_user": "ml",
        "pod_hosts_port": 22,
        "pod_hosts_cluster": "site",
        "pod_hosts_interface": "eno1",
    }


def test_a_cuda_virtualenv_is_checked_on_a_gpu_unless_the_file_says_that_there_is_none(tmp_path: Path) -> None:
    needed = inventory(found(LOCAL.replace("kind: cpu", "kind: cuda"), tmp_path)).variables
    assert needed["sdk_venv_needs_gpu"] is True
    absent = inventory(found(LOCAL.replace("kind: cpu", "kind: cuda, needs_gpu: false"), tmp_path)).variables
    assert absent["sdk_venv_needs_gpu"] is False


def test_a_slurm_cluster_is_provisioned_where_jobs_are_submitted(tmp_path: Path) -> None:
    made = inventory(found(SLURM, tmp_path))
    assert made.hosts == {"login.hpc": {"ansible_user": "me"}}
    assert made.variables["sdk_venv_path"] == "/shared/venvs/torch"
    assert list(made.groups["horovod"]) == []


def test_hosts_and_interpreter_of_the_section_stand_before_the_clusters_own(tmp_path: Path) -> None:
    text = SLURM.replace("{venv:", "{hosts: 'gpu[1-2]', interpreter: /usr/bin/python3.8, venv:")
    hostvars = inventory(found(text, tmp_path)).hosts
    assert list(hostvars) == ["gpu1", "gpu2"]
    assert hostvars["gpu1"]["ansible_python_interpreter"] == "/usr/bin/python3.8"


def test_this_machine_is_reached_without_ssh(tmp_path: Path) -> None:
    made = inventory(found(LOCAL, tmp_path))
    assert made.hosts["localhost"]["ansible_connection"] == "local"


def test_a_path_of_this_machine_is_relative_to_the_cluster_file(tmp_path: Path) -> None:
    assert inventory(found(LOCAL, tmp_path)).variables["sdk_venv_requirements"] == str(tmp_path / "pinned.txt")


def test_a_file_holds_the_same_as_a_scripts_answer(tmp_path: Path) -> None:
    answered: Any = inventory(found(POD, tmp_path)).as_json()
    written: Any = inventory(found(POD, tmp_path)).as_file()["all"]
    assert written["vars"] == answered["all"]["vars"]
    assert written["hosts"] == answered["_meta"]["hostvars"]
    assert {name: list(group["hosts"]) for name, group in written["children"].items()} == {
        name: answered[name]["hosts"] for name in answered["all"]["children"]
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: local\n", "cluster site does not say what to install on its hosts"),
        ("kind: local\nprovision: {}\n", "is empty"),
        ("kind: local\nprovision: {venv: {kind: cpu}}\n", "where the virtualenv of its jobs is: give python:"),
        ("kind: local\npython: python3\nprovision: {venv: {kind: cpu}}\n", "where the virtualenv of its jobs is"),
        ("kind: local\nprovision: {data_sets: [{name: digits}]}\n", "where data sets are: give data_dir"),
        ("kind: ipu-pod\nipus: 4\nhost_count: 1\nprovision: {pod_hosts: {}}\n", "does not name its hosts"),
    ],
)
def test_what_is_missing_is_named_with_its_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        inventory(found(text, tmp_path))


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{venv: {kind: poplar, sha256: " + SHA256 + "}}", "archive"),
        ("{venv: {kind: poplar, archive: x, sha256: abc}}", "64 hexadecimal digits"),
        ("{horovod: true}", "is installed in the virtualenv"),
        ("{venv: {kind: gpu}}", "cpu"),
        ("{hosts: 'a[1-'}", "never closes"),
        ("{data_set: []}", "data_sets"),
    ],
)
def test_a_section_that_cannot_be_meant_is_refused_with_its_line(section: Any, message: str) -> None:
    with pytest.raises(UserError, match=message) as refused:
        cluster_from_text(f"kind: local\nprovision: {section}\n", "site.yaml")
    assert "site.yaml:2" in str(refused.value)


def test_limit_takes_hosts_of_the_cluster_and_no_other(tmp_path: Path) -> None:
    made = inventory(found(POD, tmp_path))
    assert hosts_of(made, None) == ("pod-host1", "pod-host2", "pod-host3")
    assert hosts_of(made, "pod-host[2-3]") == ("pod-host2", "pod-host3")
    with pytest.raises(UserError, match=r"has no host pod-host9: did you mean pod-host\d\? It has pod-host\[1-3\]"):
        hosts_of(made, "pod-host9")


def test_host_key_checking_is_switched_off_nowhere() -> None:
    for path in companion("playbooks").rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            text = path.read_text().lower().replace(" ", "")
            for sign in ("stricthostkeychecking=no", "host_key_checking=false", "accept-new", "ssh-keyscan"):
                assert sign not in text, path
