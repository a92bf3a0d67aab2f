"""Two real sshd hosts and a third that joins them, provisioned by `trainjob provision`: real torch, Horovod, and data.

One story in order: each test looks at what one run has left, so that a run serves several.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import small_cifar, sshd_hosts
from tests.support.cutting_server import Behaviour, serving
from tests.support.programs import TRAINJOB
from tests.support.provisioned import CACHE, LIMIT_S, PYTHON, TORCH, Administrator, Ended, wheelhouse
from tests.support.sshd_hosts import Site
from trainjob.contract.package import companion
from trainjob.machines.process import search_path

pytestmark = pytest.mark.timeout(1800)

# The HOROVOD wheel that CI builds and keeps; .ci/run says where.
HOROVOD = "horovod-0.28.1"
BUILD_LIMIT_S = 3000.0


@pytest.fixture(scope="module")
def site(needs: Callable[[str], Path]) -> Iterator[Site]:
    for service in ("namespaces", "ansible", "mpirun", "horovod", "ip"):
        needs(service)
    with sshd_hosts.site(needs("sshd"), ["node1", "node2"]) as made:
        yield made


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behaviour]:
    path = small_cifar.write_archive(tmp_path_factory.mktemp("archive") / "cifar.tar.gz", small_cifar.make_batches())
    with serving(Behaviour(path.read_bytes(), cuts=[5000, 9000])) as server:
        yield server


@pytest.fixture(scope="module")
def administrator(site: Any, archive: Any, tmp_path_factory: pytest.TempPathFactory) -> Administrator:
    made = Administrator(tmp_path_factory.mktemp("administrator"), site, cluster_of(site, archive))
    keep_the_horovod_wheel(made)
    return made


def cluster_of(site: Site, archive: Behaviour) -> dict[str, Any]:
    return {
        "kind": "slurm",
        "nodes": {"count": 2, "cpus": 2},
        "ssh": {"host": "node1", "user": "root"},
        "network": {"interface": "127.0.0.0/8"},
        "python": "/mnt/venvs/torch/bin/python",
        "data_dir": "/srv/data",
        "provision": {
            "hosts": "node[1-2]",
            "venv": {"kind": "cpu", "python": PYTHON, "wheelhouse": str(wheelhouse()), "shared": True},
            "horovod": True,
            "data_sets": [
                {"name": "digits"},
                {"name": "cifar10", "archive": archive.url, "sha256": hashlib.sha256(archive.content).hexdigest()},
            ],
            "pod_hosts": {"user": "ml", "port": site.port},
        },
    }


def keep_the_horovod_wheel(administrator: Administrator) -> None:
    """Put the wheel that CI keeps where the role keeps those that it builds: a build takes minutes."""
    wheels = list(CACHE.glob(f"{HOROVOD}-py*-torch{TORCH}/{HOROVOD}-*.whl"))
    if not wheels:
        pytest.skip("no Horovod wheel is kept: .ci/run builds one")
    output = administrator.run("mpirun", "--version").output
    mpi = output.splitlines()[0].split()[-1]
    version = re.search(r"-cp(\d)(\d+)-", wheels[0].name)
    key = f"py{version[1]}.{version[2]}-torch{TORCH}+cpu-mpi{mpi}-x86_64-{HOROVOD}"
    folder = administrator.cache / "trainjob/provision" / key
    folder.mkdir(parents=True)
    shutil.copy(wheels[0], folder)


def everything_under(site: Site) -> dict[Path, bytes]:
    """Return what lies on the hosts and their shared storage, without what Ansible itself leaves."""
    found = [path for top in (site.shared, *(host.files for host in site.hosts.values())) for path in top.rglob("*")]
    return {path: path.read_bytes() if path.is_file() else b"" for path in found if ".ansible" not in path.parts}


@pytest.fixture(scope="module")
def checked(administrator: Administrator, site: Site) -> tuple[dict[Path, bytes], Ended, dict[Path, bytes]]:
    before = everything_under(site)
    ended = administrator.provision("--check")
    return before, ended, everything_under(site)


@pytest.fixture(scope="module")
def first(administrator: Administrator, checked: Any) -> Ended:
    return administrator.provision()


@pytest.fixture(scope="module")
def second(administrator: Administrator, first: Any) -> Ended:
    return administrator.provision("--tags", "sdk,horovod,pods,datasets", "--json")


def test_a_check_changes_nothing_and_says_what_would(checked: Any) -> None:
    before, ended, after = checked
    assert after == before
    assert ended.code == 0, ended.output + ended.errors
    assert f'+ torch: "{TORCH}"' in ended.output
    assert "would become" in ended.output
    assert "Gathering Facts" not in ended.output


def test_the_hosts_are_ready_and_the_table_says_what_was_done(first: Any) -> None:
    assert first.code == 0, first.output + first.errors
    assert re.search(r"HOST +VALIDATE +SDK_VENV +HOROVOD +POD_HOSTS +DATASET +PROOF", first.output)
    assert re.search(r"node1 +ok +changed +changed +changed +changed +ok", first.output), first.output
    assert re.search(r"node2 +ok +ok +ok +changed +changed +ok", first.output), first.output
    assert re.search(r"READY: 2 hosts · changed=\d+$", first.output.rstrip())
    assert re.search(r"sdk_venv +Install torch and what comes with it · node1 changed · [\d.]+ s", first.output)


def test_the_check_had_said_what_the_run_would_change(checked: Any, first: Any) -> None:
    assert changed(checked[1].output) == changed(first.output)


def changed(output: str) -> set[tuple[str, str]]:
    """Return the hosts and roles that the table at the end calls changed."""
    header, *rows = [line.split() for line in output.splitlines() if re.match(r"(HOST|node\d) ", line)]
    return {(row[0], role) for row in rows for role, status in zip(header, row, strict=True) if status == "changed"}


def test_digits_train_with_horovod_under_mpirun(first: Any, site: Any) -> None:
    assert_that_horovod_trains(site, "/mnt/venvs/torch/bin/python")


def assert_that_horovod_trains(site: Site, python: str) -> None:
    """Submit digits-cnn on node2, as a user who is logged in there."""
    here = site.hosts["node2"].at("/srv/job")
    (here / "clusters").mkdir(parents=True, exist_ok=True)
    (here / "clusters/here.yaml").write_text(f"kind: local\npython: {python}\ndata_dir: /srv/data\n")
    job = "submit --cluster here --engine horovod --instances 2 --epochs 1 --again --follow --json"
    ended = site.ssh("node2", f"cd /srv/job && {TRAINJOB} {job}", limit_s=LIMIT_S)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    run = site.hosts["node2"].at(json.loads(ended.stdout)["folder"])
    assert re.search(r"(?m)^\s*mpirun\b", (run / "job.sh").read_text())
    measured = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [one["accuracy"] > 0.3 for one in measured if one["kind"] == "evaluation"] == [True]


def test_jobs_find_the_virtualenv_and_the_data(first: Any, site: Any) -> None:
    for host in site.hosts:
        ended = site.ssh(host, "/mnt/venvs/torch/bin/python -c 'import torch, horovod.torch; print(torch.__version__)'")
        assert ended.stdout.startswith(TORCH), ended.stderr
        manifest = json.loads(site.hosts[host].at("/srv/data/cifar10/manifest.json").read_text())
        assert {name: split["samples"] for name, split in manifest["splits"].items()} == {"train": 100, "test": 20}


def test_cut_downloads_went_on_where_they_stopped(first: Any, archive: Any) -> None:
    assert archive.cuts == []
    assert len(archive.asked) == 2 + 2  # each host asks once, and two answers were cut
    went_on = [asked for asked in archive.asked if asked is not None]
    assert len(went_on) == 2
    assert all(int(asked.removeprefix("bytes=").rstrip("-")) >= 5000 for asked in went_on)


def test_every_host_reaches_every_other_without_a_prompt(first: Any, site: Any) -> None:
    for host in site.hosts:
        for other in site.hosts:
            words = ["ssh", "-o", "BatchMode=yes", "-p", str(site.port), other, "hostname"]
            ended = site.ssh(host, *words, user="ml")
            assert ended.stdout.strip() == other, ended.stderr
    limits = site.hosts["node2"].folder / "limits.d/90-trainjob-memlock.conf"
    assert limits.read_text() == "ml - memlock unlimited\n"


def test_the_second_run_changes_nothing(second: Any) -> None:
    assert second.code == 0, second.output + second.errors
    found = second.json
    assert (found["ok"], found["changed"], found["failures"]) == (True, 0, [])
    done = dict.fromkeys(("sdk_venv", "horovod", "pod_hosts", "dataset"), "ok")
    assert {host: {role: roles[role] for role in done} for host, roles in found["hosts"].items()} == {
        "node1": done,
        "node2": done,
    }


def test_a_host_that_is_down_is_named_and_the_others_finish(second: Any, administrator: Any, site: Any) -> None:
    data = site.hosts["node1"].at("/srv/data")
    shutil.rmtree(data / "digits")
    (data / "cifar10/test-labels.bin").write_bytes(b"damaged")
    site.stop(site.hosts["node2"])
    try:
        ended = administrator.provision("--tags", "datasets,check", "--json")
    finally:
        site.start(site.hosts["node2"])
    assert ended.code == 1
    found = ended.json
    assert "unreachable" in found["hosts"]["node2"].values()
    assert found["hosts"]["node1"]["dataset"] == "changed"
    assert {host: one["ok"] for host, one in found["verdict"]["hosts"].items()} == {"node1": True, "node2": False}
    assert found["verdict"]["hosts"]["node1"]["job"]["updates"] == 8
    assert [failure["host"] for failure in found["failures"]] == ["node2"]
    assert (data / "digits/manifest.json").is_file()
    assert (data / "cifar10/test-labels.bin").read_bytes() != b"damaged"
    assert "Connection refused" in found["failures"][0]["why"]


@pytest.mark.full
def test_a_new_host_is_added_and_no_other_is_touched(second: Any, administrator: Any, site: Any) -> None:
    logins = {name: host.logins for name, host in site.hosts.items()}
    site.add("node3")
    cluster = dict(administrator.cluster, provision=dict(administrator.cluster["provision"], hosts="node[1-3]"))
    administrator.write(cluster)
    ended = administrator.provision("--limit", "node3")
    assert ended.code == 0, ended.output + ended.errors
    assert "READY: 1 host ·" in ended.output
    assert re.search(r"node3 +ok +ok +ok +changed +changed +ok", ended.output), ended.output
    assert {host: site.hosts[host].logins for host in logins} == logins, "another host was touched"


def test_plain_ansible_reads_the_same_inventory(second: Any, administrator: Any) -> None:
    ended = administrator.run("trainjob", "cluster", "inventory", "site", PATH=search_path())
    program = str(companion("playbooks") / "inventory")
    script = administrator.run(program, "--list", TRAINJOB_CLUSTER="site", PATH=search_path())
    assert json.loads(script.output) == json.loads(ended.output)
    words = ["ansible-inventory", "-i", program, "--host", "node2"]
    found = json.loads(administrator.run(*words, TRAINJOB_CLUSTER="site", PATH=search_path()).output)
    assert found["sdk_venv_path"] == "/mnt/venvs/torch"
    assert found["ansible_user"] == "root"


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_a_horovod_wheel_is_built_where_none_is_kept_and_trains(administrator: Any, site: Any, tmp_path: Path) -> None:
    venv = dict(administrator.cluster["provision"]["venv"], shared=False)
    provision = {"hosts": "node2", "venv": venv, "horovod": True, "data_sets": [{"name": "digits"}]}
    other = Administrator(
        tmp_path, site, dict(administrator.cluster, python="/srv/venv/bin/python", provision=provision)
    )
    flags = ("--tags", "sdk,horovod,datasets", "--extra", "horovod_wheelhouse=")
    ended = other.provision(*flags, limit_s=BUILD_LIMIT_S)
    assert ended.code == 0, ended.output + ended.errors
    assert "Build it, which takes minutes · node2 changed" in ended.output
    assert len(list(other.cache.glob("trainjob/provision/*/horovod-*.whl"))) == 1
    assert_that_horovod_trains(site, "/srv/venv/bin/python")
