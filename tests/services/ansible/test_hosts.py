"""Hosts that are many, that let no user but root write, and that share their storage."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import make_believe_sdk as sdk
from tests.support import small_cifar, sshd_hosts
from tests.support.provisioned import PYTHON, Administrator
from tests.support.sshd_hosts import Site

pytestmark = pytest.mark.timeout(900)

# What any user may run; the tests' own may lie in root's home.
SYSTEMS = "/usr/bin/python3"
MANY = 64
# An interpreter that answers once all hosts have asked, which they do only if none waits for another.
TOGETHER = f"""\
#!/bin/sh
touch /mnt/asked/$$
for second in $(seq 240); do
  set -- /mnt/asked/*
  if [ $# -ge {MANY} ]; then exit 3; fi
  sleep 1
done
exit 4
"""


@pytest.fixture(scope="module")
def site(needs: Callable[[str], Path]) -> Iterator[Site]:
    for service in ("namespaces", "ansible", "sudo"):
        needs(service)
    with sshd_hosts.site(needs("sshd"), ["node1", "node2"]) as made:
        sdk.write_wheelhouse(made.shared / "wheels")
        yield made


def administrator(folder: Path, site: Site, user: str, hosts: str, **asked: Any) -> Administrator:
    """Return who provisions `hosts` as `user`."""
    cluster = {
        "kind": "slurm",
        "nodes": {"count": 2, "cpus": 2},
        "ssh": {"host": "node1", "user": user},
        "python": "/srv/venvs/torch/bin/python",
        "data_dir": "/mnt/data",
        "provision": {"hosts": hosts, **asked},
    }
    return Administrator(folder, site, cluster)


# -- a user who becomes root -------------------------------------------------------------------


@pytest.fixture
def ordinary(site: Any, tmp_path: Path) -> Administrator:
    venv = {"kind": "cpu", "python": SYSTEMS, "torch": sdk.TORCH, "wheelhouse": "/mnt/wheels"}
    pods = {"user": "ml", "port": site.port}
    return administrator(tmp_path, site, "ml", "node1", interpreter=SYSTEMS, venv=venv, pod_hosts=pods)


def test_an_interpreter_that_the_user_may_not_run_is_named_with_the_key_that_names_another(ordinary: Any) -> None:
    asked = dict(ordinary.cluster["provision"], interpreter="/mnt/wheels")
    ordinary.write(dict(ordinary.cluster, provision=asked))
    output = ordinary.provision("--tags", "sdk", "--json").json["failures"][0]["why"]
    assert "/mnt/wheels: Permission denied" in output
    assert "3.8 or newer: provision: {interpreter: …}" in output


@pytest.mark.full
def test_a_user_without_permission_gets_an_error_and_becomes_root_on_request(ordinary: Any, site: Any) -> None:
    refused = ordinary.provision("--tags", "sdk", "--json").json["failures"]
    assert "ml may not write to /srv (owner root" in refused[0]["why"]
    assert "or run with --become" in refused[0]["why"]
    refused = ordinary.provision("--tags", "pods", "--json").json["failures"]
    assert "Limits are set by root: run with --become" in refused[0]["why"]

    # Its key pair is there by now. As a kill leaves it, with one half, it is made whole, and the key stays.
    node = site.hosts["node1"]
    key = node.at("/srv/ml/.ssh/id_ed25519")
    private, public = key.read_text(), key.with_suffix(".pub").read_text()
    key.with_suffix(".pub").unlink()

    done = ordinary.provision("--become", "--tags", "sdk,pods", "--json").json
    assert (done["ok"], done["failures"]) == (True, [])
    assert (key.read_text(), key.with_suffix(".pub").read_text().split()) == (private, public.split())
    assert node.at("/srv/venvs/torch/bin/python").resolve().parents[2].owner() == "root"
    assert {path.stat().st_uid for path in node.at("/srv/ml/.ssh").iterdir()} == {sshd_hosts.USER_ID}
    assert (node.folder / "limits.d/90-trainjob-memlock.conf").read_text() == "ml - memlock unlimited\n"

    again = ordinary.provision("--become", "--tags", "sdk,pods", "--json").json
    assert (again["ok"], again["changed"]) == (True, 0)


# -- hosts that know each other -----------------------------------------------------------------


@pytest.mark.full
def test_hosts_of_a_pod_know_each_other_and_forget_who_has_left(site: Site, tmp_path: Path) -> None:
    pods = {"user": "ml", "port": site.port}
    folders = [host.at("/srv/ml/.ssh") for host in site.hosts.values()]
    theirs = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl mine\n"
    for folder in folders:
        with (folder / "authorized_keys").open("a") as stream:
            stream.write(theirs)
    one = administrator(tmp_path, site, "root", "node[1-2]", interpreter=PYTHON, pod_hosts=pods)
    made = one.provision("--tags", "pods", "--json").json
    assert made["ok"], made["failures"]
    for host in site.hosts:
        for other in site.hosts:
            ended = site.ssh(host, "ssh", "-o", "BatchMode=yes", "-p", str(site.port), other, "hostname", user="ml")
            assert ended.stdout.strip() == other, ended.stderr
    limited = one.provision("--tags", "pods", "--limit", "node1", "--json").json
    assert (limited["ok"], limited["changed"]) == (True, 0)

    one.write(dict(one.cluster, provision=dict(one.cluster["provision"], hosts="node1")))
    left = one.provision("--tags", "pods", "--json").json
    assert left["ok"], left["failures"]
    authorized = (folders[0] / "authorized_keys").read_text()
    known = (folders[0] / "known_hosts").read_text()
    assert theirs in authorized
    assert [text.count("trainjob:site:node2") for text in (authorized, known)] == [0, 0]
    assert [text.count("trainjob:site:node1") for text in (authorized, known)] == [1, 1]


# -- storage that hosts share ------------------------------------------------------------------


def test_one_host_prepares_what_all_share_and_all_check_it(site: Any, tmp_path: Path) -> None:
    archive = small_cifar.write_archive(site.at_shared("/mnt/cifar.tar.gz"), small_cifar.make_batches())
    one = {"name": "cifar10", "archive": "/mnt/cifar.tar.gz", "sha256": sdk.sha256_of(archive)}
    shares = {"shared_data": True, "data_sets": [one]}
    sharing = administrator(tmp_path, site, "root", "node[1-2]", interpreter=PYTHON, **shares)
    flags = ("--tags", "datasets", "--extra", f"dataset_python={sys.executable}", "--json")
    found = sharing.provision(*flags).json
    assert [found["hosts"][host]["dataset"] for host in ("node1", "node2")] == ["changed", "ok"], found["failures"]
    site.at_shared("/mnt/data/cifar10/test-labels.bin").write_bytes(b"damaged")
    repaired = sharing.provision(*flags, "--limit", "node2").json
    assert (repaired["ok"], repaired["hosts"]["node2"]["dataset"]) == (True, "changed")


# -- many hosts --------------------------------------------------------------------------------


@pytest.mark.full
def test_as_many_hosts_as_a_large_pod_has_are_served_at_once(site: Any, tmp_path: Path) -> None:
    site.name(site.hosts["node1"], [f"many{number}" for number in range(1, MANY + 1)])
    site.at_shared("/mnt/asked").mkdir()
    together = site.at_shared("/mnt/together")
    together.write_text(TOGETHER)
    together.chmod(0o755)
    venv = {"kind": "cpu", "python": "/mnt/together"}
    crowd = administrator(tmp_path, site, "root", f"many[1-{MANY}]", venv=venv, interpreter=PYTHON)
    failures = crowd.provision("--tags", "sdk", "--json").json["failures"]
    assert len(failures) == MANY
    assert {failure["task"] for failure in failures} == {"Make the virtualenv beside"}
    assert [failure["why"] for failure in failures if "exited with 3" not in failure["why"]] == []
